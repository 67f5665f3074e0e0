// How many events may a daemon send, so that a cluster does not drown in those of a node whose rules were all lost at once?

/** Events at once, and how often a further one is allowed: as client-go limits the events of one source. */
const AT_ONCE = 25;
const EVERY_MS = 12_000;

/** A number of events that grows with time up to a limit. */
export class EventBudget {
  #left = AT_ONCE;
  #at: number;
  #omitted = 0;

  constructor(now: number) {
    this.#at = now;
  }

  /** Whether an event may be sent now, which counts as sent. */
  take(now: number): boolean {
    this.#left = Math.min(AT_ONCE, this.#left + (now - this.#at) / EVERY_MS);
    this.#at = now;
    const isAllowed = this.#left >= 1;
    if (isAllowed) this.#left -= 1;
    else this.#omitted += 1;
    return isAllowed;
  }

  /** Events that were not allowed since this was last asked. */
  takeOmitted(): number {
    const omitted = this.#omitted;
    this.#omitted = 0;
    return omitted;
  }
}
