// How many requests run at the same time, and how many are queued?

/** Limits of the daemon's load. */
export interface ServerLimits {
  /** Requests that run at the same time. */
  readonly requests: number;
  /** Maximum number of queued requests; further ones are refused with "try again later". */
  readonly queue: number;
  /** Bytes of one request. */
  readonly bytes: number;
}

/** Default limits. */
export const SERVER_LIMITS: ServerLimits = { requests: 64, queue: 1_024, bytes: 32 * 1024 * 1024 };

/** A server in numbers. */
export interface ServerState {
  /** Requests that are running, queued, and answered so far. */
  readonly running: number;
  readonly queued: number;
  readonly served: number;
}

/** Limits how many requests run and how many are queued. */
export class RequestLimiter {
  #limits: ServerLimits;
  readonly #waiting: (() => void)[] = [];
  #running = 0;
  #served = 0;

  constructor(limits: ServerLimits) {
    this.#limits = limits;
  }

  get limits(): ServerLimits {
    return this.#limits;
  }

  /** New limits hold at once for what is queued: more requests may begin now, or none until enough have ended. */
  set limits(limits: ServerLimits) {
    this.#limits = limits;
    this.#beginQueued();
  }

  get state(): ServerState {
    return { running: this.#running, queued: this.#waiting.length, served: this.#served };
  }

  /** Runs the work when its turn comes; undefined if the queue is full. */
  admit<T>(work: (queueMs: number) => Promise<T>): Promise<T> | undefined {
    const asked = performance.now();
    return this.enter()?.then(async leave => {
      try {
        return await work(performance.now() - asked);
      } finally {
        leave();
      }
    });
  }

  /** @returns a promise of the turn, which resolves to the function that ends the turn; undefined if the queue is full */
  enter(): Promise<() => void> | undefined {
    const leave = (): void => {
      this.#running -= 1;
      this.#served += 1;
      this.#beginQueued();
    };
    const begin = (): (() => void) => {
      this.#running += 1;
      return leave;
    };
    if (this.#running < this.#limits.requests) return Promise.resolve(begin());
    if (this.#waiting.length >= this.#limits.queue) return undefined;
    return new Promise(resolve => this.#waiting.push(() => resolve(begin())));
  }

  #beginQueued(): void {
    while (this.#running < this.#limits.requests && this.#waiting.length > 0) this.#waiting.shift()?.();
  }
}
