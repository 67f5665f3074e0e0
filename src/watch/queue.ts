// In which order, how many at a time and how often are attachments visited?
import { pause } from '../wait.ts';

/** How visits are limited. */
export interface QueueLimits {
  /** Visits at the same time. */
  readonly atOnce: number;
  /** Resolves when nothing more urgent is waiting. */
  idle(): Promise<void>;
}

/** A visit that has to wait for something lets others take its place until then. */
export type Rest = (ms: number) => Promise<void>;

/**
 * Attachments that wait for their visit, each once. A visit that is asked for while one is in progress takes place after it: what
 * the first one saw may be older than the change.
 */
export class VisitQueue {
  readonly #waiting = new Set<string>();
  readonly #visiting = new Map<string, Promise<void>>();
  readonly #resting = new Set<string>();
  readonly #visit: (key: string, rest: Rest) => Promise<void>;
  readonly #limits: QueueLimits;
  #settled: (() => void)[] = [];
  #isClosed = false;

  constructor(visit: (key: string, rest: Rest) => Promise<void>, limits: QueueLimits) {
    this.#visit = visit;
    this.#limits = limits;
  }

  /** Nothing is in progress, and nothing can begin. */
  get isSettled(): boolean {
    return this.#atWork === 0 && [...this.#waiting].every(key => this.#resting.has(key));
  }

  add(keys: Iterable<string>): void {
    if (this.#isClosed) return;
    for (const key of keys) this.#waiting.add(key);
    this.#next();
  }

  /** Resolves when nothing is in progress but visits that rest. */
  settled(): Promise<void> {
    return this.isSettled ? Promise.resolve() : new Promise(resolve => this.#settled.push(resolve));
  }

  /** Begins no further visit, and waits for those in progress. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#waiting.clear();
    await Promise.all(this.#visiting.values());
  }

  get #atWork(): number {
    return this.#visiting.size - this.#resting.size;
  }

  #next(): void {
    for (const key of this.#waiting) {
      if (this.#atWork >= this.#limits.atOnce) return;
      if (this.#visiting.has(key)) continue;
      this.#waiting.delete(key);
      this.#visiting.set(key, this.#run(key));
    }
    if (!this.isSettled) return;
    const told = this.#settled;
    this.#settled = [];
    for (const tell of told) tell();
  }

  async #run(key: string): Promise<void> {
    await this.#limits.idle();
    if (!this.#isClosed) await this.#visit(key, ms => this.#rest(key, ms));
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
