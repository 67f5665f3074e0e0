// How does a test wait for an event elsewhere?

import fs from 'node:fs';
import { deadline } from './deadline.ts';

const DEADLINE_MS = 20_000;
const EVERY_MS = 5;
/** A look that starts a program must not take the core from what it waits for: the pause after it is twice as long, up to this. */
const MOST_PAUSE_MS = 250;
/** Before the test's own deadline, which would not say what was waited for. */
const MOST_MS = 100_000;

/** Polls until the condition holds. @throws Error if it does not hold in time, by default within 20 seconds, more on a busy machine */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  { withinMs = DEADLINE_MS, everyMs = EVERY_MS } = {},
): Promise<void> {
  const giveUpAt = performance.now() + Math.min(deadline(withinMs), Math.max(withinMs, MOST_MS));
  for (;;) {
    const began = performance.now();
    if (await isSo()) return;
    const ended = performance.now();
    if (ended > giveUpAt) throw new Error(`Gave up waiting until ${isSo}`);
    await Bun.sleep(Math.max(everyMs, Math.min(MOST_PAUSE_MS, 2 * (ended - began))));
  }
}

/** A program of another namespace is in it before it is executed. @param program its name, of which the kernel keeps 15 characters */
export function untilExecuted({ pid }: { readonly pid: number }, program: string): Promise<void> {
  return until(() => fs.readFileSync(`/proc/${pid}/comm`, 'utf8') === `${program}\n`);
}

/** The kernel lets go of the parent, which has a child then, before the new program's environment can be read. */
export function untilStarted({ pid }: { readonly pid: number }, variable: string): Promise<void> {
  return until(() => fs.readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`${variable}=`));
}
