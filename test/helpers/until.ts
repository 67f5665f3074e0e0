// How does a test wait for an event elsewhere?

import fs from 'node:fs';
import { deadline } from './deadline.ts';

const DEADLINE_MS = 20_000;
const EVERY_MS = 5;
/** Before the test's own deadline, which would not say what was waited for. */
const MOST_MS = 100_000;

/** Polls until the condition holds. @throws Error if it does not hold in time, by default within 20 seconds, more on a busy machine */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  { withinMs = DEADLINE_MS, everyMs = EVERY_MS } = {},
): Promise<void> {
  const giveUpAt = performance.now() + Math.min(deadline(withinMs), Math.max(withinMs, MOST_MS));
  while (!(await isSo())) {
    if (performance.now() > giveUpAt) throw new Error(`Gave up waiting until ${isSo}`);
    await Bun.sleep(everyMs);
  }
}

/** The kernel lets go of the parent, which has a child then, before the new program's environment can be read. */
export function untilStarted({ pid }: { readonly pid: number }, variable: string): Promise<void> {
  return until(() => fs.readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`${variable}=`));
}
