// How much time may checks take that find nothing, and that others cause?

/** Time at once after a while without any: a firewall is reloaded now and then. */
const MOST_MS = 2_000;

/** Time that grows while nothing is spent. All times are milliseconds of one clock. */
export class Credit {
  readonly #share: number;
  #left = MOST_MS;
  #at = 0;

  /** @param share one part of the time in so many */
  constructor(share: number) {
    this.#share = share;
  }

  /** How long until there is some; 0 or less: there is. */
  pause(now: number): number {
    return -this.#leftAt(now) * this.#share;
  }

  /** @param tookMs spent until now */
  spend(now: number, tookMs: number): void {
    this.#left = this.#leftAt(now) - tookMs;
    this.#at = now;
  }

  #leftAt(now: number): number {
    return Math.min(MOST_MS, this.#left + (now - this.#at) / this.#share);
  }
}
