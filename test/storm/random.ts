// Which numbers follow from a seed?

/** Draws that a seed determines. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 to 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** True so often. */
  chance(share: number): boolean {
    return this.next() < share;
  }

  /** A whole number, both ends included. */
  int(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1));
  }

  pick<T>(items: readonly T[]): T {
    const item = items[this.int(0, items.length - 1)];
    if (item === undefined) throw new Error('unreachable: nothing to pick from');
    return item;
  }

  /** One of the keys, by weight. */
  weighted<K extends string>(weights: Readonly<Partial<Record<K, number>>>): K {
    const rows = Object.entries(weights) as [K, number][];
    let left = this.next() * rows.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [key, weight] of rows) {
      left -= weight;
      if (left < 0) return key;
    }
    return (rows.at(-1) as [K, number])[0];
  }
}
