// How is a duration on the command line read?

import { LONGEST_S } from '../wait.ts';
import { UsageError } from './command.ts';

/**
 * The seconds in a text: above zero, at most what a timer can wait.
 * @param as names it in the error (`--timeout "add=x"`)
 * @throws UsageError
 */
export function secondsIn(text: string, as: string, { zero = false, most = LONGEST_S } = {}): number {
  const seconds = Number(text);
  if (text.trim() !== '' && (seconds > 0 || (zero && seconds === 0)) && seconds <= most) return seconds;
  const range = `${zero ? 'from' : 'above'} 0 to ${most}`;
  throw new UsageError(`Cannot use ${as}: expected a number of seconds ${range}`);
}
