// In which order, how many at a time and how often are attachments visited, some of which may hang?
import { pause } from '../../wait.ts';

interface VisitLimits {
  /** Visits at the same time, besides those that rest and those that take long. */
  readonly atOnce: number;
  /** What hangs together, such as a network: while a visit of it takes long, no other one of it begins. */
  groupOf(key: string): string;
  /** Resolves when nothing more urgent is waiting. */
  idle?(): Promise<void>;
}

/** A visit that has to wait for something lets others take its place until then. */
export type Rest = (ms: number) => Promise<void>;

/** A visit at work for longer waits for something that may hang, and lets others take its place. */
const LONG_MS = 1_000;

/**
 * Attachments that wait for their visit, each once. A visit that is asked for while one is in progress takes place after it: what
 * the first one saw may be older than the change.
 */
export class VisitQueue {
  readonly #waiting = new Set<string>();
  readonly #visiting = new Map<string, Promise<void>>();
  /** Those that others do not wait for: they rest. */
  readonly #resting = new Set<string>();
  /** Those that others do not wait for, except those of their group: they take long. */
  readonly #long = new Set<string>();
  readonly #visit: (key: string, rest: Rest) => Promise<void>;
  readonly #limits: VisitLimits;
  #onIdle: (() => void)[] = [];
  #isClosed = false;

  constructor(visit: (key: string, rest: Rest) => Promise<void>, limits: VisitLimits) {
    this.#visit = visit;
    this.#limits = limits;
  }

  /** Nothing is at work, and nothing can begin. */
  get isIdle(): boolean {
    return this.#atWork === 0 && [...this.#waiting].every(key => !this.#mayBegin(key));
  }

  add(keys: Iterable<string>): void {
    if (this.#isClosed) return;
    for (const key of keys) this.#waiting.add(key);
    this.#next();
  }

  has(key: string): boolean {
    return this.#visiting.has(key) || this.#waiting.has(key);
  }

  /** Forgets a visit that waits. @returns false if one is in progress */
  withdraw(key: string): boolean {
    this.#waiting.delete(key);
    return !this.#visiting.has(key);
  }

  /** Resolves when nothing is in progress but visits that rest or take long. */
  whenIdle(): Promise<void> {
    return this.isIdle ? Promise.resolve() : new Promise(resolve => this.#onIdle.push(resolve));
  }

  /** Resolves when there are no visits, of any kind. */
  async ended(): Promise<void> {
    while (this.#visiting.size > 0) await Promise.race(this.#visiting.values());
  }

  /** Begins no further visit, and waits for those in progress. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#waiting.clear();
    await this.ended();
  }

  get #atWork(): number {
    return [...this.#visiting.keys()].filter(key => !this.#resting.has(key) && !this.#long.has(key)).length;
  }

  #mayBegin(key: string): boolean {
    const { groupOf } = this.#limits;
    return !this.#visiting.has(key) && ![...this.#long].some(other => groupOf(other) === groupOf(key));
  }

  #next(): void {
    for (const key of this.#waiting) {
      if (this.#atWork >= this.#limits.atOnce) return;
      if (!this.#mayBegin(key)) continue;
      this.#waiting.delete(key);
      this.#visiting.set(key, this.#run(key));
    }
    if (!this.isIdle) return;
    const told = this.#onIdle;
    this.#onIdle = [];
    for (const tell of told) tell();
  }

  async #run(key: string): Promise<void> {
    await this.#limits.idle?.();
    const late = setTimeout(() => {
      // One that rests hangs on nothing.
      if (this.#resting.has(key)) return;
      this.#long.add(key);
      this.#next();
    }, LONG_MS);
    if (!this.#isClosed) await this.#visit(key, ms => this.#rest(key, ms));
    clearTimeout(late);
    this.#long.delete(key);
    this.#visiting.delete(key);
    this.#next();
  }

  /** When it goes on, there may be one visit more at work than allowed, for a moment. */
  async #rest(key: string, ms: number): Promise<void> {
    this.#resting.add(key);
    this.#next();
    await pause(ms);
    this.#resting.delete(key);
  }
}

/** Why one was not visited, human-readable: `instead` of {@link visitAll}. */
export const INTERRUPTED = 'the command was interrupted before its turn came';

/**
 * Visits each once, in order, and ends with the last visit. After the signal none begins: `instead` says what it is then.
 * @returns what the visits returned, in the order of `all`
 * @throws what the first visit threw that failed, after all of them
 */
export async function visitAll<T, R>(
  all: readonly T[],
  {
    groupOf,
    atOnce = 1,
    signal,
    instead,
  }: {
    groupOf(one: T): string;
    readonly atOnce?: number;
    readonly signal?: AbortSignal | undefined;
    instead?(one: T): R;
  },
  visit: (one: T, rest: Rest) => Promise<R>,
): Promise<R[]> {
  const visits = new Map<string, Promise<R>>();
  const oneOf = (key: string) => all[Number(key)] as T;
  const queue = new VisitQueue(
    async (key, rest) => {
      if (!signal?.aborted) visits.set(key, visit(oneOf(key), rest));
      else if (instead) visits.set(key, Promise.resolve(instead(oneOf(key))));
      await visits.get(key)?.catch(() => {});
    },
    { atOnce, groupOf: key => groupOf(oneOf(key)) },
  );
  const keys = all.map((_, place) => String(place));
  queue.add(keys);
  await queue.ended();
  return Promise.all(keys.flatMap(key => visits.get(key) ?? []));
}
