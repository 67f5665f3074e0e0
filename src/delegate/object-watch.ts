// Which objects of a kind does a cluster have right now, without asking it each time?
import { setTimeout as sleep } from 'node:timers/promises';
import { isObject, type JsonObject, parseObject } from '../cni/json.ts';
import type { ApiServer } from './api-server.ts';

/** What is watched, and what is kept of it. */
export interface WatchedKind<T> {
  /** Path of the collection below the server (`apis/…/network-attachment-definitions`). */
  readonly path: string;
  /** Further parameters, such as `fieldSelector`. */
  readonly query?: Readonly<Record<string, string>>;
  /** What is kept of an object; undefined for nothing. */
  keep(object: JsonObject): T | undefined;
}

/** Objects that are known while the watch is up. */
export interface WatchedObjects<T> {
  /** The object as it is now. Undefined when there is none or nobody can be sure: whoever needs to know asks the server. */
  find(namespace: string, name: string): T | undefined;
  /** Whether what is known is what the server has. */
  readonly isFresh: boolean;
  close(): void;
}

/** Times of a watch in milliseconds, and how much it may keep. */
export interface WatchLimits {
  /** The server ends a watch after this many seconds, and another one goes on from there. */
  readonly lengthS: number;
  /** The server sends a bookmark every minute; after this much silence there is no server. */
  readonly silenceMs: number;
  /** From one attempt to the next, doubled each time. */
  readonly backoffMs: { readonly first: number; readonly last: number };
  /** Until what happened during an interruption has surely been told. */
  readonly settleMs: number;
  readonly objects: number;
  /** Characters of JSON that are kept. */
  readonly characters: number;
}

/** Limits that hold unless told otherwise. */
export const WATCH_LIMITS: WatchLimits = {
  lengthS: 300,
  silenceMs: 150_000,
  backoffMs: { first: 1_000, last: 30_000 },
  settleMs: 1_000,
  objects: 10_000,
  characters: 16 * 1024 * 1024,
};

/** Objects of one answer to a list. */
const PAGE = 500;
/** A watch that was up for so long was no failed attempt. */
const STEADY_MS = 10_000;

/**
 * Lists the objects of a kind and follows their changes until it is closed: from bookmark to bookmark, with a new list when the
 * server has forgotten where we were, and with growing pauses while it cannot be reached.
 * @param onProblem told why there is no watch, once for each reason in a row
 */
export function watchObjects<T>(
  server: ApiServer,
  kind: WatchedKind<T>,
  onProblem: (problem: Error) => void,
  limits: WatchLimits = WATCH_LIMITS,
): WatchedObjects<T> {
  const end = new AbortController();
  const state = new State(kind, limits);
  void follow(server, kind, state, { signal: end.signal, limits, onProblem });
  return {
    find: (namespace, name) => (state.isFresh ? state.find(namespace, name) : undefined),
    get isFresh() {
      return state.isFresh;
    },
    close() {
      end.abort();
      state.clear();
    },
  };
}

/** What is known, and since when that is what the server has. */
class State<T> {
  readonly #kind: WatchedKind<T>;
  readonly #limits: WatchLimits;
  #objects = new Map<string, { value: T; size: number }>();
  #characters = 0;
  #freshFrom = Number.POSITIVE_INFINITY;
  /** Where to go on; undefined before the first list. */
  version: string | undefined;

  constructor(kind: WatchedKind<T>, limits: WatchLimits) {
    this.#kind = kind;
    this.#limits = limits;
  }

  get isFresh(): boolean {
    return performance.now() >= this.#freshFrom;
  }

  /** The watch is up. */
  opened(afterMs: number): void {
    this.#freshFrom = performance.now() + afterMs;
  }

  /** The watch is down: what is known may be of yesterday. @returns the milliseconds that it was up */
  closed(): number {
    const upMs = Math.max(performance.now() - this.#freshFrom, 0);
    this.#freshFrom = Number.POSITIVE_INFINITY;
    return upMs;
  }

  clear(): void {
    this.closed();
    this.#objects = new Map();
    this.#characters = 0;
  }

  find(namespace: string, name: string): T | undefined {
    return this.#objects.get(`${namespace}/${name}`)?.value;
  }

  /** What is too much is not kept: the server is asked for it. */
  set(object: JsonObject): void {
    const key = keyOf(object);
    this.#forget(key);
    const value = this.#kind.keep(object);
    if (value === undefined) return;
    const size = JSON.stringify(value).length;
    const { objects, characters } = this.#limits;
    if (this.#objects.size >= objects || this.#characters + size > characters) return;
    this.#objects.set(key, { value, size });
    this.#characters += size;
  }

  delete(object: JsonObject): void {
    this.#forget(keyOf(object));
  }

  #forget(key: string): void {
    this.#characters -= this.#objects.get(key)?.size ?? 0;
    this.#objects.delete(key);
  }
}

interface Surroundings {
  readonly signal: AbortSignal;
  readonly limits: WatchLimits;
  readonly onProblem: (problem: Error) => void;
}

async function follow<T>(
  server: ApiServer,
  kind: WatchedKind<T>,
  state: State<T>,
  { signal, limits, onProblem }: Surroundings,
): Promise<void> {
  let failures = 0;
  let told = '';
  while (!signal.aborted) {
    let isGone = false;
    try {
      // A list is what the server has; after an interruption there may be something on the way.
      const settleMs = state.version === undefined ? 0 : limits.settleMs;
      if (state.version === undefined) await list(server, kind, state);
      isGone = !(await watch(server, kind, state, { signal, limits, settleMs }));
      told = '';
    } catch (thrown) {
      const problem = thrown as Error;
      if (!signal.aborted && problem.message !== told) onProblem(problem);
      told = problem.message;
    }
    if (state.closed() > STEADY_MS) failures = 0;
    if (isGone) state.version = undefined;
    if (isGone && failures === 0) failures = 1;
    else await pause(failures++, limits, signal);
  }
}

/** @throws CniError when the server cannot be used */
async function list<T>(server: ApiServer, kind: WatchedKind<T>, state: State<T>): Promise<void> {
  state.clear();
  let next: unknown = '';
  let version = '';
  do {
    const query = { ...kind.query, limit: String(PAGE), ...(next ? { continue: String(next) } : {}) };
    const page = await server.ask('GET', withQuery(kind.path, query));
    const metadata = isObject(page?.metadata) ? page.metadata : {};
    for (const item of Array.isArray(page?.items) ? page.items : []) if (isObject(item)) state.set(item);
    next = metadata.continue;
    if (page === undefined) throw new Error(`Cannot watch "${kind.path}": the cluster has no such kind`);
    if (typeof metadata.resourceVersion === 'string') version = metadata.resourceVersion;
  } while (next);
  state.version = version;
}

/** @returns false when the server has forgotten where we were */
async function watch<T>(
  server: ApiServer,
  kind: WatchedKind<T>,
  state: State<T>,
  { signal, limits, settleMs }: Pick<Surroundings, 'signal' | 'limits'> & { readonly settleMs: number },
): Promise<boolean> {
  let isGone = false;
  const query = {
    ...{ watch: 'true', allowWatchBookmarks: 'true', timeoutSeconds: String(limits.lengthS) },
    ...{ ...kind.query, resourceVersion: state.version ?? '' },
  };
  const status = await server.listen(withQuery(kind.path, query), {
    signal,
    silenceMs: limits.silenceMs,
    onOpen: () => state.opened(settleMs),
    onLine(line) {
      const event = parseObject(line, 'event of a watch');
      isGone = !take(event, state);
    },
  });
  return status === 200 && !isGone;
}

/**
 * @returns false when the server has forgotten where we were
 * @throws Error for an event that says that the watch has failed
 */
function take<T>({ type, object }: JsonObject, state: State<T>): boolean {
  if (!isObject(object)) throw new Error('Cannot follow a watch: an event has no object');
  if (type === 'ERROR') {
    if (object.code === GONE) {
      state.closed();
      return false;
    }
    throw new Error(`Cannot follow a watch: ${String(object.message ?? 'the server reports an error')}`);
  }
  const { resourceVersion } = isObject(object.metadata) ? object.metadata : {};
  if (type === 'DELETED') state.delete(object);
  else if (type === 'ADDED' || type === 'MODIFIED') state.set(object);
  if (typeof resourceVersion === 'string') state.version = resourceVersion;
  return true;
}

/** HTTP: what was asked for is not there any more. */
const GONE = 410;

async function pause(
  failures: number,
  { backoffMs: { first, last } }: WatchLimits,
  signal: AbortSignal,
): Promise<void> {
  if (failures === 0) return;
  const most = Math.min(first * 2 ** (failures - 1), last);
  // Nodes that lost their server at the same time do not all come back at the same time.
  await sleep(most * (0.5 + Math.random() / 2), undefined, { signal, ref: false }).catch(() => {});
}

function withQuery(path: string, query: Readonly<Record<string, string>>): string {
  return `${path}?${new URLSearchParams(query)}`;
}

function keyOf({ metadata }: JsonObject): string {
  const { namespace, name } = isObject(metadata) ? metadata : {};
  return `${String(namespace ?? '')}/${String(name ?? '')}`;
}
