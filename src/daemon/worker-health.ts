// Can this daemon start workers?

/** How long a daemon that cannot start a worker waits for that to change. */
const GIVE_UP_MS = 10_000;

/** Notified about the workers' health. */
export interface HealthEvents {
  /** No worker starts. */
  failing(problem: string): void;
  /** Workers start again. */
  recovered(): void;
  /** No worker has started for so long that waiting longer is pointless. */
  hopeless(problem: string): void;
}

/** What is known from the workers' starts so far. */
export class WorkerHealth {
  readonly #events: HealthEvents;
  #problem: string | undefined;
  #since = performance.now();
  #isHopeless = false;

  constructor(events: HealthEvents) {
    this.#events = events;
  }

  /** Why the last worker failed to start; undefined if it started. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Notes that a worker serves, or that it ended before it could. */
  note(problem: string | undefined): void {
    if (problem === undefined) {
      if (this.#problem !== undefined) this.#events.recovered();
      this.#problem = undefined;
      return;
    }
    if (this.#problem === undefined) this.#events.failing(problem);
    this.#problem = problem;
  }

  /** Gives up if no worker serves for too long. @param served whether a worker serves now */
  judge(served: boolean): void {
    if (this.#problem === undefined || served) {
      this.#since = performance.now();
      return;
    }
    if (this.#isHopeless || performance.now() - this.#since < GIVE_UP_MS) return;
    this.#isHopeless = true;
    this.#events.hopeless(this.#problem);
  }
}
