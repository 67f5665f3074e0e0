// How many requests run at the same time, and how many are queued?
import { startTimer, type Timer } from '../wait.ts';

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

/** A request that runs longer waits for something, such as a foreign plugin or a server: it gives its turn to another one. */
const LONG_MS = 1_000;
/** Where no request ends for this time, what waits is declined, and its client does it itself. While requests end, waiting is cheaper. */
const STANDSTILL_MS = 1_000;
/** Requests that have given their turn away: so many times the limit of all, and the limit itself for each network. */
const LONG_SHARE = 4;

/** A request in the queue. */
interface Waiter {
  readonly group: string;
  begin(): void;
}

/** Limits how many requests run and how many are queued. */
export class RequestLimiter {
  #limits: ServerLimits;
  readonly #waiting = new Set<Waiter>();
  readonly #long = new Map<string, number>();
  #running = 0;
  #longer = 0;
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
    return { running: this.#running + this.#longer, queued: this.#waiting.size, served: this.#served };
  }

  /** Runs the work when its turn comes; undefined if that does not come soon. @param group what hangs together, such as a network */
  async admit<T>(group: string, work: (queueMs: number) => Promise<T>): Promise<T | undefined> {
    const asked = performance.now();
    const leave = await this.enter(group);
    if (leave === undefined) return undefined;
    try {
      return await work(performance.now() - asked);
    } finally {
      leave();
    }
  }

  /** @returns the function that ends the turn; undefined if the queue is full or stands still */
  async enter(group: string): Promise<(() => void) | undefined> {
    if (this.#mayBegin(group)) return this.#begin(group);
    const isHopeless = this.#isHeldUp(group) || this.#waiting.size >= this.#limits.queue;
    return isHopeless ? undefined : this.#wait(group);
  }

  #wait(group: string): Promise<(() => void) | undefined> {
    return new Promise(resolve => {
      let served = this.#served;
      let look: Timer;
      const lookLater = (): void => {
        look = startTimer(() => {
          const isMoving = this.#served > served;
          served = this.#served;
          if (isMoving) return lookLater();
          this.#waiting.delete(waiter);
          resolve(undefined);
        }, STANDSTILL_MS);
      };
      const waiter: Waiter = {
        group,
        begin: () => {
          clearTimeout(look);
          this.#waiting.delete(waiter);
          resolve(this.#begin(group));
        },
      };
      this.#waiting.add(waiter);
      lookLater();
    });
  }

  #mayBegin(group: string): boolean {
    return this.#running < this.#limits.requests && !this.#isHeldUp(group);
  }

  /** Whether so many take long, of its network or of all, that another one would only be one more. */
  #isHeldUp(group: string): boolean {
    const { requests } = this.#limits;
    return (this.#long.get(group) ?? 0) >= requests || this.#longer >= LONG_SHARE * requests;
  }

  #begin(group: string): () => void {
    this.#running += 1;
    let isLong = false;
    const turn = setTimeout(() => {
      isLong = true;
      this.#running -= 1;
      this.#longer += 1;
      this.#long.set(group, (this.#long.get(group) ?? 0) + 1);
      this.#beginQueued();
    }, LONG_MS);
    return () => {
      clearTimeout(turn);
      this.#served += 1;
      if (isLong) {
        this.#longer -= 1;
        const left = (this.#long.get(group) ?? 1) - 1;
        if (left > 0) this.#long.set(group, left);
        else this.#long.delete(group);
      } else this.#running -= 1;
      this.#beginQueued();
    };
  }

  #beginQueued(): void {
    for (const waiter of this.#waiting) if (this.#mayBegin(waiter.group)) waiter.begin();
  }
}
