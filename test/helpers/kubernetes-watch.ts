// How does a test's API server list its objects and report their changes?
import type { ServerResponse } from 'node:http';
import type { Row } from './netns.ts';

/** Lists and watches of a test's API server. */
export interface Collections {
  /** Answers a list or a watch; false for any other request. */
  serve(url: URL, reply: ServerResponse): boolean;
  /** Adds or replaces an object. */
  put(path: string, object: Row): void;
  remove(path: string): void;
  /** Number of open watches. */
  readonly open: number;
  /** Sends every watch a bookmark with the server's current version. */
  bookmark(): void;
  /** Breaks every watch at an arbitrary point. */
  cut(): void;
  /** From now on watches receive nothing, as when the network drops packets. */
  mute(): void;
  /** Forgets the history: a request for changes since then gets a 410. */
  compact(): void;
  /** Sends a line to every watch. */
  say(line: string): void;
  close(): void;
}

interface Change {
  readonly version: number;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly path: string;
  readonly object: Row;
}

interface Stream {
  readonly url: URL;
  readonly reply: ServerResponse;
}

/** The objects of a server by path; a collection path without a namespace contains those of all namespaces. */
export function makeCollections(objects: Map<string, Row>): Collections {
  const changes: Change[] = [];
  const streams = new Set<Stream>();
  let version = 100;
  let oldest = 0;
  let muted = false;
  // A list of tens of thousands of objects is read page by page.
  let listed = { version: 0, url: '', all: [] as [string, Row][] };
  const matching = (url: URL): [string, Row][] => {
    const asked = `${url.pathname} ${url.searchParams.get('fieldSelector')} ${url.searchParams.get('labelSelector')}`;
    if (listed.version !== version || listed.url !== asked)
      listed = {
        version,
        url: asked,
        all: [...objects].filter(([path, object]) => belongs(url, path, object)),
      };
    return listed.all;
  };

  const note = (type: Change['type'], path: string, object: Row): void => {
    version += 1;
    object.metadata = { ...object.metadata, resourceVersion: String(version) };
    const change = { version, type, path, object: structuredClone(object) };
    changes.push(change);
    for (const stream of streams) send(stream, change);
  };
  const send = ({ url, reply }: Stream, { type, path, object }: Change): void => {
    if (muted || !belongs(url, path, object)) return;
    reply.write(`${JSON.stringify({ type, object })}\n`);
  };

  return {
    serve(url, reply) {
      const [, kind] =
        /\/(pods|nodes|blocks|pools|ippools|daemonsets|network-attachment-definitions|resourceslices)$/.exec(
          url.pathname,
        ) ?? [];
      // A server of its age may not have the kind.
      const isNew = kind === 'resourceslices';
      if (!kind || (isNew && ![...objects.keys()].some(path => path.includes(`/${kind}/`)))) return false;
      reply.writeHead(200, { 'content-type': 'application/json' });
      if (url.searchParams.get('watch') !== 'true') {
        reply.end(JSON.stringify(list(url, matching(url), version)));
        return true;
      }
      reply.flushHeaders();
      const since = Number(url.searchParams.get('resourceVersion'));
      const stream = { url, reply };
      if (since < oldest) {
        const object = { kind: 'Status', code: 410, message: `too old resource version: ${since}` };
        reply.end(`${JSON.stringify({ type: 'ERROR', object })}\n`);
        return true;
      }
      streams.add(stream);
      reply.on('close', () => streams.delete(stream));
      for (const change of changes) if (change.version > since) send(stream, change);
      return true;
    },
    put(path, object) {
      note(objects.has(path) ? 'MODIFIED' : 'ADDED', path, object);
      objects.set(path, object);
    },
    remove(path) {
      const object = objects.get(path);
      objects.delete(path);
      if (object) note('DELETED', path, object);
    },
    get open() {
      return streams.size;
    },
    bookmark() {
      const object = { metadata: { resourceVersion: String(version) } };
      this.say(JSON.stringify({ type: 'BOOKMARK', object }));
    },
    cut() {
      for (const { reply } of streams) reply.destroy();
    },
    mute() {
      muted = true;
    },
    compact() {
      version += 1;
      oldest = version;
    },
    say(line) {
      for (const { reply } of muted ? [] : streams) reply.write(`${line}\n`);
    },
    close() {
      for (const { reply } of streams) reply.destroy();
    },
  };
}

/** Elements of a list do not state their kind; a long list is paginated. */
function list(url: URL, all: readonly [string, Row][], version: number): Row {
  const limit = Number(url.searchParams.get('limit') ?? 500);
  const from = Number(url.searchParams.get('continue') ?? 0);
  const items = all.slice(from, from + limit).map(([, { kind: _, apiVersion: __, ...item }]) => item);
  const more = from + limit < all.length ? { continue: String(from + limit) } : {};
  return { kind: 'List', apiVersion: 'v1', metadata: { resourceVersion: String(version), ...more }, items };
}

function belongs({ pathname, searchParams }: URL, path: string, { spec, metadata }: Row): boolean {
  const kind = pathname.split('/').at(-1);
  const [, node] = searchParams.get('fieldSelector')?.split('spec.nodeName=') ?? [];
  const [label, wanted] = searchParams.get('labelSelector')?.split('=') ?? [];
  if (label !== undefined && metadata?.labels?.[label] !== wanted) return false;
  return path.split('/').at(-2) === kind && (node === undefined || spec?.nodeName === node);
}
