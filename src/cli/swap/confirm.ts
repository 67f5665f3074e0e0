// Is a swap what the user wants, now that he has seen what it means?
import { createInterface } from 'node:readline/promises';
import { isatty } from 'node:tty';
import type { CommandCall } from '../command.ts';

/**
 * Asks whoever sits there; where nobody does, what the command line says counts.
 * @param doubt what makes it a question that only a person may answer with yes
 */
export async function confirm(call: CommandCall, doubt?: string): Promise<'yes' | 'no' | 'doubt'> {
  if (call.on('yes') || call.on('json') || !isatty(0) || !isatty(1))
    return doubt === undefined ? 'yes' : 'doubt';
  const asking = createInterface({ input: process.stdin, output: process.stdout, terminal: false });
  const question = doubt === undefined ? 'go on?' : 'it does things otherwise, as shown above: go on?';
  try {
    const answer = await asking.question(`${question} [y/N] `, { signal: call.signal });
    return /^y(es)?$/i.test(answer.trim()) ? 'yes' : 'no';
  } catch {
    // Ended, or nobody there any more.
    return 'no';
  } finally {
    asking.close();
  }
}
