// How long may a wait be, and how does one of any length begin?
//
// The platform's timers end at once if they are to wait longer than 2^31 - 1 ms. So every duration that is not a constant of ours comes
// through here; the structure test holds that.

/** Longest wait: 24 days and 20 hours. Longer ones end after it; so do those that are no number. */
export const LONGEST_MS = 0x7fff_ffff;

/** The longest duration that options and settings take, in whole seconds. */
export const LONGEST_S = Math.floor(LONGEST_MS / 1_000);

/** How long a lock is waited for: its holder may wait for RCU grace periods, for a network card to go down, or for a full disk. */
export const LOCK_DEADLINE_MS = 30_000;

/** Time for a plugin to run, unless its runner sets another. */
export const PLUGIN_DEADLINE_MS = 60_000;

/** Time of a process between SIGTERM and SIGKILL. */
export const GRACE_MS = 2_000;

/** A running timer, for `clearTimeout`. */
export type Timer = ReturnType<typeof setTimeout>;

/** Does the work after a time in milliseconds; below 0 counts as 0. */
export function startTimer(work: () => void, ms: number): Timer {
  return setTimeout(work, bounded(ms));
}

/** Several timers at once, all of which may be ended. */
interface Timers {
  later(work: () => void, ms: number): void;
  /** Asked for again while it waits, it is done once. @returns what asks for it */
  once(work: () => void, ms: number): () => void;
  clear(): void;
}

/** @param signal once it is aborted, nothing is done */
export function makeTimers(signal: AbortSignal): Timers {
  const timers = new Set<Timer>();
  const later = (work: () => void, ms: number): void => {
    const timer = startTimer(() => {
      timers.delete(timer);
      if (!signal.aborted) work();
    }, ms);
    timer.unref();
    timers.add(timer);
  };
  return {
    later,
    once(work, ms) {
      let isWaiting = false;
      return () => {
        if (isWaiting) return;
        isWaiting = true;
        later(() => {
          isWaiting = false;
          work();
        }, ms);
      };
    },
    clear() {
      for (const timer of timers) clearTimeout(timer);
    },
  };
}

/** Resolves after a time in milliseconds. */
export function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, bounded(ms)));
}

/** How often work that lets other work go first looks whether that is done. */
const LOOK_EVERY_MS = 20;

/** Resolves once nothing is busy, or after a time in milliseconds. Begins to wait only if something is. */
export async function letGoFirst(isBusy: () => boolean, longestMs: number): Promise<void> {
  for (let left = longestMs; left > 0 && isBusy(); left -= LOOK_EVERY_MS) await pause(LOOK_EVERY_MS);
}

/** A signal that is aborted after a time in milliseconds. */
export function timeLimit(ms: number): AbortSignal {
  return AbortSignal.timeout(bounded(ms));
}

function bounded(ms: number): number {
  return ms <= LONGEST_MS ? Math.max(ms, 0) : LONGEST_MS;
}
