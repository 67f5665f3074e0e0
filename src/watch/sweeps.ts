// How often may every attachment be looked at because of changes that name none of them?

/** Share of the time that sweeps may take which turned out to be needless: 2 %. */
const NEEDLESS_SHARE = 50;
/** Least pause between two sweeps. */
const LEAST_MS = 1_000;

/**
 * Decides when the next sweep begins. A change that has removed a part of attachments is acted on after a second at most. One that
 * only may have, such as another program's use of iptables, waits if the last sweep found nothing, so that sweeps
 * take a fiftieth of the time at most.
 */
export class SweepPacer {
  #wanted: 'likely' | 'possible' | undefined;
  #endedAt = -Infinity;
  #tookMs = 0;
  #wasNeedless = false;

  want(isLikely: boolean): void {
    if (isLikely || this.#wanted === undefined) this.#wanted = isLikely ? 'likely' : 'possible';
  }

  /** Milliseconds until the sweep that is wanted may begin; undefined if none is. */
  due(now: number): number | undefined {
    if (this.#wanted === undefined) return undefined;
    const isSlow = this.#wanted === 'possible' && this.#wasNeedless;
    const pause = Math.max(LEAST_MS, isSlow ? this.#tookMs * NEEDLESS_SHARE : this.#tookMs);
    return Math.max(0, this.#endedAt + pause - now);
  }

  begun(): void {
    this.#wanted = undefined;
  }

  ended(now: number, tookMs: number, wasNeedless: boolean): void {
    this.#endedAt = now;
    this.#tookMs = tookMs;
    this.#wasNeedless = wasNeedless;
  }
}
