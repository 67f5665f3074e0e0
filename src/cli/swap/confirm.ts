// Does the user want the swap, having seen its consequences?
import { createInterface } from 'node:readline/promises';
import { isatty } from 'node:tty';
import type { CommandCall } from '../command.ts';
import { isData } from '../output/format.ts';

/**
 * Asks the user on a terminal. Without one, the command line decides.
 * @param doubt a reason why only a person may confirm
 */
export async function confirm(call: CommandCall, doubt?: string): Promise<'yes' | 'no' | 'doubt'> {
  if (call.on('yes') || isData(call) || !isatty(0) || !isatty(1))
    return doubt === undefined ? 'yes' : 'doubt';
  const asking = createInterface({ input: process.stdin, output: process.stdout, terminal: false });
  const question = doubt === undefined ? 'continue?' : 'it behaves differently, as shown above: continue?';
  try {
    const answer = await asking.question(`${question} [y/N] `, { signal: call.signal });
    return /^y(es)?$/i.test(answer.trim()) ? 'yes' : 'no';
  } catch {
    // Ended, or the terminal was closed.
    return 'no';
  } finally {
    asking.close();
  }
}
