// In which order, how many at a time and how often are attachments visited?

/** How visits are limited. */
export interface QueueLimits {
  /** Visits at the same time. */
  readonly atOnce: number;
  /** Resolves when nothing more urgent is waiting. */
  idle(): Promise<void>;
}

/**
 * Attachments that wait for their visit, each once. A visit that is asked for while one is in progress takes place after it: what
 * the first one saw may be older than the change.
 */
export class VisitQueue {
  readonly #waiting = new Set<string>();
  readonly #visiting = new Map<string, Promise<void>>();
  readonly #visit: (key: string) => Promise<void>;
  readonly #limits: QueueLimits;
  #settled: (() => void)[] = [];
  #isClosed = false;

  constructor(visit: (key: string) => Promise<void>, limits: QueueLimits) {
    this.#visit = visit;
    this.#limits = limits;
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0 && this.#visiting.size === 0;
  }

  add(keys: Iterable<string>): void {
    if (this.#isClosed) return;
    for (const key of keys) this.#waiting.add(key);
    this.#next();
  }

  /** Resolves when nothing waits and nothing is in progress. */
  settled(): Promise<void> {
    return this.isEmpty ? Promise.resolve() : new Promise(resolve => this.#settled.push(resolve));
  }

  /** Begins no further visit, and waits for those in progress. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#waiting.clear();
    await Promise.all(this.#visiting.values());
  }

  #next(): void {
    for (const key of this.#waiting) {
      if (this.#visiting.size >= this.#limits.atOnce) return;
      if (this.#visiting.has(key)) continue;
      this.#waiting.delete(key);
      this.#visiting.set(key, this.#run(key));
    }
    if (!this.isEmpty) return;
    const told = this.#settled;
    this.#settled = [];
    for (const tell of told) tell();
  }

  async #run(key: string): Promise<void> {
    await this.#limits.idle();
    if (!this.#isClosed) await this.#visit(key);
    this.#visiting.delete(key);
    this.#next();
  }
}
