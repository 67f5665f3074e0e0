// How does a test wait for an event elsewhere?

import { deadline } from './deadline.ts';

const DEADLINE_MS = 20_000;
const EVERY_MS = 5;

/** Polls until the condition holds. @throws Error if it does not hold in time, by default within 20 seconds, more on a busy machine */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  { withinMs = DEADLINE_MS, everyMs = EVERY_MS } = {},
): Promise<void> {
  const giveUpAt = performance.now() + deadline(withinMs);
  while (!(await isSo())) {
    if (performance.now() > giveUpAt) throw new Error(`Gave up waiting until ${isSo}`);
    await Bun.sleep(everyMs);
  }
}
