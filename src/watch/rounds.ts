// When is an attachment checked that nothing has happened to?
//
// Inside a pod's namespace things change without a notification: only a check finds that. Every round checks for a hundredth of the
// time at most, so with many attachments one is checked less often. Rounds rather than a steady trickle let workers rest between.
import { startTimer } from '../wait.ts';

/** What the rounds need. */
export interface RoundParts {
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
