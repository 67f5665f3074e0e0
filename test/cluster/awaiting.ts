// How does the cluster's harness wait for what happens elsewhere?

import { deadline } from '../helpers/deadline.ts';

const EVERY_MS = 300;

/**
 * Polls until something is found.
 * @param find returns what is found, or false or undefined while it is not there; an error counts as that
 * @throws Error that names what is missing after that many seconds, and what the last attempt said
 */
export async function awaiting<T>(
  what: string,
  seconds: number,
  find: () => Promise<T | false | undefined>,
): Promise<T> {
  const giveUpAt = Date.now() + deadline(seconds * 1000);
  let last = '';
  for (;;) {
    try {
      const found = await find();
      if (found !== undefined && found !== false) return found;
      last = '';
    } catch (error) {
      last = `: ${error instanceof Error ? error.message : error}`;
    }
    if (Date.now() > giveUpAt) throw new Error(`Gave up waiting for ${what} after ${seconds} s${last}`);
    await Bun.sleep(EVERY_MS);
  }
}
