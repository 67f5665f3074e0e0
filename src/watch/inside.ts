// When is an attachment checked because something changed inside its namespace?
import type { Credit } from './credit.ts';

/** What the visits need of the watch. */
export interface InsideParts {
  /** Time for visits that find nothing: containers may change what is theirs all the time. */
  readonly credit: Credit;
  visit(key: string): Promise<void>;
  /** How many visits have found something. */
  found(): number;
  later(work: () => void, ms: number): void;
}

/** A visit may have waited for others, whose time is not its own. */
const MOST_MS = 100;

/**
 * Visits attachments one after the other, each once however often it has changed. A container in which things change all the
 * time has its turn after the others.
 * @returns a function that asks for visits
 */
export function visitInside({ credit, visit, found, later }: InsideParts): (keys: Iterable<string>) => void {
  const waiting = new Set<string>();
  let isRunning = false;
  const run = async (): Promise<void> => {
    for (const key of waiting) {
      const pause = credit.pause(performance.now());
      if (pause > 0) {
        later(() => void run(), pause);
        return;
      }
      waiting.delete(key);
      const [startedAt, before] = [performance.now(), found()];
      await visit(key);
      const now = performance.now();
      if (found() === before) credit.spend(now, Math.min(now - startedAt, MOST_MS));
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
