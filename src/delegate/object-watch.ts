// Which objects of a kind does a cluster have now, without a request for each?
import { setTimeout as sleep } from 'node:timers/promises';
import { isObject, type JsonObject, parseObject } from '../cni/json.ts';
import { type ApiServer, listPages } from './api-server.ts';

interface WatchedKind<T> {
  /** Path of the collection below the server (`apis/…/network-attachment-definitions`). */
  readonly path: string;
  /** Further parameters, such as `fieldSelector`. */
  readonly query?: Readonly<Record<string, string>>;
  /** What to keep of an object; undefined for nothing. */
  keep(object: JsonObject): T | undefined;
  /** Who made it, where one of many may make any number; see {@link WatchLimits.ofOne}. */
  ownerOf?(kept: T): string;
  /** Called with each object that is new or changed, or may be. */
  onChange?(object: JsonObject): void;
  /** Called with each object that was deleted. */
  onDelete?(object: JsonObject): void;
  /** Called when the watch runs (again): the objects will be those of the server after this time. */
  onOpen?(afterMs: number): void;
}

export interface WatchedObjects<T> {
  /** The current object. Undefined if there is none or that is uncertain: a caller that has to know asks the server. */
  find(namespace: string, name: string): T | undefined;
  /** All objects; undefined while that is uncertain, and if there are more than the limits allow. */
  all(): T[] | undefined;
  /** Whether the known objects are those of the server. */
  readonly isFresh: boolean;
  close(): void;
}

/** Times of a watch in milliseconds, and limits of what it keeps. */
export interface WatchLimits {
  /** The server ends a watch after this many seconds, and a new one continues from there. */
  readonly lengthS: number;
  /** The server sends a bookmark every minute; after this much silence it counts as gone. */
  readonly silenceMs: number;
  /** Pause between attempts, doubled each time. */
  readonly backoffMs: { readonly first: number; readonly last: number };
  /** Time after an interruption until all events of it have arrived. */
  readonly catchUpMs: number;
  readonly objects: number;
  /** Objects of one owner; without further ones, those of all others still count as all that there are. */
  readonly ofOne?: number;
  /** Characters of JSON to keep. */
  readonly characters: number;
}

export const WATCH_LIMITS: WatchLimits = {
  lengthS: 300,
  silenceMs: 150_000,
  backoffMs: { first: 1_000, last: 30_000 },
  catchUpMs: 1_000,
  objects: 10_000,
  characters: 16 * 1024 * 1024,
};

/** A watch that ran for this long does not count as a failed attempt. */
const STEADY_MS = 10_000;

/**
 * Lists the objects of a kind and follows their changes until it is closed. Resumes from bookmark to bookmark, lists again if the
 * server no longer has our position, and pauses longer and longer while the server cannot be reached.
 * @param onProblem called with why there is no watch, once for each reason in a row
 */
export function watchObjects<T>(
  server: ApiServer,
  kind: WatchedKind<T>,
  onProblem: (problem: Error) => void,
  limits: WatchLimits = WATCH_LIMITS,
): WatchedObjects<T> {
  const watch = new ObjectWatch(server, kind, limits);
  void watch.follow(onProblem);
  return watch;
}

/** The known objects, and since when they are up to date. */
class ObjectWatch<T> implements WatchedObjects<T> {
  readonly #server: ApiServer;
  readonly #kind: WatchedKind<T>;
  readonly #limits: WatchLimits;
  readonly #end = new AbortController();
  #objects = new Map<string, { value: T; size: number; owner: string | undefined }>();
  readonly #ofOwner = new Map<string, number>();
  #characters = 0;
  #freshFrom = Number.POSITIVE_INFINITY;
  /** Whether no object was left out since the last list. */
  #isWhole = true;
  /** Version to resume from; undefined before the first list. */
  #version: string | undefined;

  constructor(server: ApiServer, kind: WatchedKind<T>, limits: WatchLimits) {
    this.#server = server;
    this.#kind = kind;
    this.#limits = limits;
  }

  get isFresh(): boolean {
    return performance.now() >= this.#freshFrom;
  }

  find(namespace: string, name: string): T | undefined {
    return this.isFresh ? this.#objects.get(`${namespace}/${name}`)?.value : undefined;
  }

  all(): T[] | undefined {
    return this.isFresh && this.#isWhole ? [...this.#objects.values()].map(({ value }) => value) : undefined;
  }

  close(): void {
    this.#end.abort();
    this.#clear();
  }

  async follow(onProblem: (problem: Error) => void): Promise<void> {
    const { signal } = this.#end;
    let failures = 0;
    let told = '';
    while (!signal.aborted) {
      let isGone = false;
      let problem: Error | undefined;
      try {
        // A list is up to date; after an interruption, events may still be on the way.
        const catchUpMs = this.#version === undefined ? 0 : this.#limits.catchUpMs;
        if (this.#version === undefined) await this.#list();
        isGone = !(await this.#watch(catchUpMs));
      } catch (thrown) {
        problem = thrown as Error;
      }
      if (this.#closed() > STEADY_MS) [failures, told] = [0, ''];
      if (problem && !signal.aborted && problem.message !== told) onProblem(problem);
      told = problem?.message ?? '';
      if (isGone) this.#version = undefined;
      if (isGone && failures === 0) failures = 1;
      else await pause(failures++, this.#limits, signal);
    }
  }

  /** @throws CniError when the server cannot be used */
  async #list(): Promise<void> {
    this.#clear();
    let latest = '';
    for await (const { items, version } of listPages(this.#server, this.#kind.path, this.#kind.query)) {
      for (const item of items) this.#set(item);
      latest = version || latest;
    }
    this.#version = latest;
  }

  /** @returns false when the server no longer has our position */
  async #watch(catchUpMs: number): Promise<boolean> {
    const { lengthS, silenceMs } = this.#limits;
    let isGone = false;
    const query = {
      watch: 'true',
      allowWatchBookmarks: 'true',
      timeoutSeconds: String(lengthS),
      ...this.#kind.query,
      resourceVersion: this.#version ?? '',
    };
    const status = await this.#server.listen(`${this.#kind.path}?${new URLSearchParams(query)}`, {
      signal: this.#end.signal,
      silenceMs,
      onOpen: () => {
        this.#freshFrom = performance.now() + catchUpMs;
        this.#kind.onOpen?.(catchUpMs);
      },
      onLine: line => {
        isGone = !this.#take(parseObject(line, 'event of a watch'));
      },
    });
    return status === 200 && !isGone;
  }

  /**
   * @returns false when the server no longer has our position
   * @throws Error for an event that says that the watch has failed
   */
  #take({ type, object }: JsonObject): boolean {
    if (!isObject(object)) throw new Error('Cannot follow a watch: an event has no object');
    if (type === 'ERROR') {
      if (object.code !== GONE)
        throw new Error(`Cannot follow a watch: ${String(object.message ?? 'the server reports an error')}`);
      this.#closed();
      return false;
    }
    const { resourceVersion } = isObject(object.metadata) ? object.metadata : {};
    if (type === 'DELETED') {
      this.#forget(keyOf(object));
      this.#kind.onDelete?.(object);
    } else if (type === 'ADDED' || type === 'MODIFIED') this.#set(object);
    if (typeof resourceVersion === 'string') this.#version = resourceVersion;
    return true;
  }

  /** The watch has ended: the known objects may be outdated. @returns the milliseconds that it ran */
  #closed(): number {
    const upMs = Math.max(performance.now() - this.#freshFrom, 0);
    this.#freshFrom = Number.POSITIVE_INFINITY;
    return upMs;
  }

  #clear(): void {
    this.#closed();
    this.#objects = new Map();
    this.#ofOwner.clear();
    this.#characters = 0;
    this.#isWhole = true;
  }

  /** Objects above the limit are not kept: callers ask the server for them. */
  #set(object: JsonObject): void {
    const key = keyOf(object);
    this.#forget(key);
    this.#kind.onChange?.(object);
    const value = this.#kind.keep(object);
    if (value === undefined) return;
    const size = JSON.stringify(value).length;
    const { objects, characters, ofOne = objects } = this.#limits;
    const owner = this.#kind.ownerOf?.(value);
    if (owner !== undefined && (this.#ofOwner.get(owner) ?? 0) >= ofOne) return;
    if (this.#objects.size >= objects || this.#characters + size > characters) {
      this.#isWhole = false;
      return;
    }
    this.#objects.set(key, { value, size, owner });
    this.#characters += size;
    if (owner !== undefined) this.#ofOwner.set(owner, (this.#ofOwner.get(owner) ?? 0) + 1);
  }

  #forget(key: string): void {
    const known = this.#objects.get(key);
    if (known === undefined) return;
    const { size, owner } = known;
    this.#characters -= size;
    if (owner !== undefined) this.#ofOwner.set(owner, (this.#ofOwner.get(owner) ?? 1) - 1);
    this.#objects.delete(key);
  }
}

/** HTTP: the requested version no longer exists. */
const GONE = 410;

async function pause(
  failures: number,
  { backoffMs: { first, last } }: WatchLimits,
  signal: AbortSignal,
): Promise<void> {
  if (failures === 0) return;
  const most = Math.min(first * 2 ** (failures - 1), last);
  // Nodes that lost their server at the same time must not all reconnect at the same time.
  await sleep(most * (0.5 + Math.random() / 2), undefined, { signal, ref: false }).catch(() => {});
}

function keyOf({ metadata }: JsonObject): string {
  const { namespace, name } = isObject(metadata) ? metadata : {};
  return `${String(namespace ?? '')}/${String(name ?? '')}`;
}
