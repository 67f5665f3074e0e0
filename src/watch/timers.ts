// How is work done later that must not be done once the watch has ended?
import { startTimer, type Timer } from '../wait.ts';

/** Work that waits. */
export interface Timers {
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
