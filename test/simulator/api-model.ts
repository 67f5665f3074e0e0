// How does the API server behave, as far as the allocator can tell?
//
// A model in memory, for interleavings that a real server shows once in a million: names are unique, every write changes the
// version, and a precondition that is not met refuses it. test/simulator/api-model.test.ts asks the same of a real server, where there is one.
import type { JsonObject } from '../../src/cni/json.ts';
import type { ApiServer } from '../../src/delegate/api-server.ts';

const OURS = /^apis\/catena\./;

type Method = Parameters<ApiServer['ask']>[0];
type Body = Parameters<ApiServer['ask']>[2];
interface Stored {
  metadata: { name: string; uid: string; resourceVersion: string; labels?: Record<string, string> };
  [key: string]: unknown;
}

/** What was asked of the model. */
export interface ApiCounts {
  requests: number;
  conflicts: number;
}

/** A status and a body, as a server sends them. */
export interface ApiAnswer {
  readonly status: number;
  readonly object: JsonObject;
}

/** A server in memory. */
export interface ApiModel {
  readonly counts: ApiCounts;
  /** Objects by path, without a leading slash. */
  readonly objects: ReadonlyMap<string, Stored>;
  /** Does one request at once. */
  handle(method: Method, path: string, body?: Body): ApiAnswer;
  put(path: string, object: JsonObject): void;
  remove(path: string): void;
  /** Remembers all objects of ours. @returns a function that restores them, with the version of that time: a backup of etcd */
  backup(): () => void;
}

/** An empty server. */
export function apiModel(): ApiModel {
  const objects = new Map<string, Stored>();
  const counts: ApiCounts = { requests: 0, conflicts: 0 };
  let version = 0;
  let uids = 0;
  const next = () => String(++version);

  function handle(method: Method, path: string, body?: Body): ApiAnswer {
    counts.requests++;
    const answer = respond(method, path, structuredClone(body));
    if (answer.status === 409) counts.conflicts++;
    return structuredClone(answer);
  }

  function respond(method: Method, path: string, body: Body): ApiAnswer {
    const [at = '', query = ''] = path.split('?');
    if (method === 'POST') return create(at, body as JsonObject);
    const object = objects.get(at);
    if (method === 'GET' && (query || isCollection(at))) return list(at, new URLSearchParams(query));
    if (object === undefined) return failure(404, `"${at}" not found`);
    if (method === 'GET') return { status: 200, object };
    if (method === 'DELETE') return erase(at, object, body as JsonObject);
    if (method === 'PUT') return replace(at, object, body as unknown as Stored);
    return Array.isArray(body) ? operate(at, object, body) : failure(405, 'the model merges nothing');
  }

  function create(collection: string, body: JsonObject): ApiAnswer {
    const metadata = body.metadata as Stored['metadata'];
    const at = `${collection}/${metadata.name}`;
    if (objects.has(at)) return failure(409, `"${at}" already exists`);
    const object = { ...body, metadata: { ...metadata, uid: `uid-${++uids}`, resourceVersion: next() } };
    objects.set(at, object);
    return { status: 201, object };
  }

  function replace(at: string, object: Stored, body: Stored): ApiAnswer {
    const { uid, resourceVersion } = body.metadata;
    if (uid !== object.metadata.uid || resourceVersion !== object.metadata.resourceVersion) {
      return failure(409, 'the object has been modified');
    }
    // As the real server: what changes nothing does not change the version.
    const isSame = JSON.stringify(sorted(body)) === JSON.stringify(sorted(object));
    return isSame ? { status: 200, object } : store(at, body);
  }

  function store(at: string, body: Stored): ApiAnswer {
    const object = { ...body, metadata: { ...body.metadata, resourceVersion: next() } };
    objects.set(at, object);
    return { status: 200, object };
  }

  function operate(at: string, object: Stored, operations: readonly JsonObject[]): ApiAnswer {
    const copy = structuredClone(object);
    for (const { op, path, value } of operations) {
      const keys = String(path)
        .split('/')
        .slice(1)
        .map(key => key.replaceAll('~1', '/').replaceAll('~0', '~'));
      const last = keys.pop() ?? '';
      let parent: unknown = copy;
      for (const key of keys) parent = (parent as Record<string, unknown> | undefined)?.[key];
      if (typeof parent !== 'object' || parent === null) return failure(422, `"${path}" does not exist`);
      const members = parent as Record<string, unknown>;
      if (op === 'test' && JSON.stringify(members[last] ?? null) !== JSON.stringify(value ?? null)) {
        return failure(422, `testing path ${path} failed`);
      }
      if ((op === 'remove' || op === 'replace') && !(last in members))
        return failure(422, `"${path}" does not exist`);
      if (op === 'remove') delete members[last];
      else if (op !== 'test') members[last] = value;
    }
    return store(at, copy);
  }

  function erase(at: string, object: Stored, body: JsonObject | undefined): ApiAnswer {
    const { uid, resourceVersion } = (body?.preconditions ?? {}) as Partial<Stored['metadata']>;
    if (uid !== undefined && uid !== object.metadata.uid) return failure(409, 'Precondition failed: UID');
    if (resourceVersion !== undefined && resourceVersion !== object.metadata.resourceVersion) {
      return failure(409, 'Precondition failed: ResourceVersion');
    }
    objects.delete(at);
    return { status: 200, object: { kind: 'Status', status: 'Success' } };
  }

  function list(at: string, query: URLSearchParams): ApiAnswer {
    const wanted = (query.get('labelSelector') ?? '')
      .split(',')
      .filter(Boolean)
      .map(one => one.split('='));
    const from = query.get('continue') ?? '';
    const limit = Number(query.get('limit') ?? Number.POSITIVE_INFINITY);
    const own = [...objects]
      .filter(([path]) => path.startsWith(`${at}/`) && path > from)
      .filter(([, { metadata }]) => wanted.every(([key = '', value]) => metadata.labels?.[key] === value))
      .sort(([a], [b]) => (a < b ? -1 : 1));
    const page = own.slice(0, limit);
    const more = own.length > page.length ? (page.at(-1)?.[0] ?? '') : '';
    const metadata = { resourceVersion: String(version), ...(more ? { continue: more } : {}) };
    return { status: 200, object: { metadata, items: page.map(([, object]) => object) } };
  }

  return {
    counts,
    objects,
    handle,
    put(path, object) {
      const metadata = object.metadata as Stored['metadata'];
      objects.set(path, {
        ...object,
        metadata: { ...metadata, uid: metadata.uid ?? `uid-${++uids}`, resourceVersion: next() },
      });
    },
    remove: path => void objects.delete(path),
    backup() {
      const saved = structuredClone([...objects].filter(([path]) => OURS.test(path)));
      const at = version;
      return () => {
        for (const path of [...objects.keys()]) if (OURS.test(path)) objects.delete(path);
        for (const [path, object] of structuredClone(saved)) objects.set(path, object);
        version = at;
      };
    },
  };
}

/** With the keys of every object in order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(
    entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, member]) => [key, sorted(member)]),
  );
}

function isCollection(at: string): boolean {
  return /\/(pools|blocks|addresses|nodes|ippools)$/.test(at);
}

function failure(status: number, message: string): ApiAnswer {
  return { status, object: { kind: 'Status', status: 'Failure', code: status, message } };
}
