// When may checks run that no change of an attachment asks for, and how long may they take?
import { startTimer } from '../wait.ts';

/** Share of the time that sweeps may take which turned out to be needless: 2 %. */
const NEEDLESS_SHARE = 50;
/** Least pause between two sweeps. */
const LEAST_MS = 1_000;

/**
 * Decides when the next sweep begins. A change that has removed a part of attachments is acted on after a second at most. So is one that
 * only may have, such as another program's use of iptables, unless sweeps because of such changes found nothing again and again: these
 * take a fiftieth of the time at most.
 */
export class SweepPacer {
  #wanted: 'likely' | 'possible' | undefined;
  #endedAt = -Infinity;
  #tookMs = 0;
  readonly #allowance = new Allowance(NEEDLESS_SHARE);

  want(isLikely: boolean): void {
    if (isLikely || this.#wanted === undefined) this.#wanted = isLikely ? 'likely' : 'possible';
  }

  /** Milliseconds until the sweep that is wanted may begin; undefined if none is. */
  due(now: number): number | undefined {
    if (this.#wanted === undefined) return undefined;
    const rest = this.#endedAt + Math.max(LEAST_MS, this.#tookMs) - now;
    const debt = this.#wanted === 'possible' ? this.#allowance.pause(now) : 0;
    return Math.max(0, rest, debt);
  }

  begun(): void {
    this.#wanted = undefined;
  }

  ended(now: number, tookMs: number, wasNeedless: boolean): void {
    this.#endedAt = now;
    this.#tookMs = tookMs;
    if (wasNeedless) this.#allowance.spend(now, tookMs);
  }
}

/** Time at once after a while without any: a firewall is reloaded now and then. */
const MOST_MS = 2_000;

/** Time that grows while nothing is spent. All times are milliseconds of one clock. */
export class Allowance {
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

interface InsideParts {
  /** Time for visits that find nothing: containers may change what is theirs all the time. */
  readonly allowance: Allowance;
  visit(key: string): Promise<void>;
  /** How many visits have found something. */
  found(): number;
  later(work: () => void, ms: number): void;
}

/** A visit may have waited for others, whose time is not its own. */
const LONGEST_MS = 100;

/**
 * Visits attachments one after the other, each once however often it has changed. A container in which things change all the
 * time has its turn after the others.
 * @returns a function that asks for visits
 */
export function visitInside({
  allowance,
  visit,
  found,
  later,
}: InsideParts): (keys: Iterable<string>) => void {
  const waiting = new Set<string>();
  let isRunning = false;
  const run = async (): Promise<void> => {
    for (const key of waiting) {
      const pause = allowance.pause(performance.now());
      if (pause > 0) {
        later(() => void run(), pause);
        return;
      }
      waiting.delete(key);
      const [startedAt, before] = [performance.now(), found()];
      await visit(key);
      const now = performance.now();
      if (found() === before) allowance.spend(now, Math.min(now - startedAt, LONGEST_MS));
    }
    isRunning = false;
  };
  return keys => {
    for (const key of keys) waiting.add(key);
    if (isRunning || waiting.size === 0) return;
    isRunning = true;
    void run();
  };
}

// Inside a pod's namespace things change without a notification: only a check finds that. Every round checks for a hundredth of the
// time at most, so with many attachments one is checked less often. Rounds rather than a steady trickle let workers rest between.

interface RoundParts {
  /** Least time between two checks of an attachment, in milliseconds. */
  everyMs(): number;
  /** The attachments now. */
  list(): readonly string[];
  /** When an attachment was last checked, by performance.now(); undefined: never. */
  checkedAt(key: string): number | undefined;
  visit(key: string): Promise<void>;
  /** Called after each round. */
  atEnd(): Promise<void>;
}

/** Share of the time that checks may take: 1 % of a core. Daemon and worker work at once, and listing attachments takes the rest of 2 %. */
const SHARE = 100;
/** Rounds vary by this part of their interval, so that those of many nodes are not at the same time. */
const JITTER = 0.2;

/**
 * Each round lists the attachments and starts a worker, however few it checks. After one that could not check all, the next is this
 * many times longer, and that much later.
 */
const LONGER = 3;

/** Starts the rounds. @returns a function that stops them; it resolves when the visit in progress has ended */
export function startRounds(parts: RoundParts): () => Promise<void> {
  let isStopped = false;
  let wake: (() => void) | undefined;
  const run = async (): Promise<void> => {
    for (let isComplete = true; !isStopped; ) {
      const interval: number = parts.everyMs() * (isComplete ? 1 : LONGER);
      await new Promise<void>(resolve => {
        const timer = startTimer(resolve, interval * (1 - JITTER * Math.random()));
        timer.unref();
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      if (isStopped) return;
      isComplete = await round(parts, interval / SHARE, () => isStopped).catch(() => true);
    }
  };
  const running = run();
  return () => {
    isStopped = true;
    wake?.();
    return running;
  };
}

/**
 * Checks those that were not checked for the longest time, as long as the round may take.
 * @returns whether all were checked that should be
 */
async function round(parts: RoundParts, forMs: number, isStopped: () => boolean): Promise<boolean> {
  const startedAt = performance.now();
  const isRecent = (at: number) => at > startedAt - parts.everyMs() * (1 - 2 * JITTER);
  const due = parts
    .list()
    .map(key => ({ key, at: parts.checkedAt(key) ?? Number.NEGATIVE_INFINITY }))
    .filter(({ at }) => !isRecent(at))
    .sort((a, b) => a.at - b.at);
  let visited = 0;
  for (const { key } of due) {
    if (isStopped() || performance.now() > startedAt + forMs) break;
    await parts.visit(key);
    visited += 1;
  }
  if (!isStopped()) await parts.atEnd();
  return visited === due.length;
}
