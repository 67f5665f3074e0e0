// Is output coloured?
import { isatty } from 'node:tty';
import { type CommandCall, UsageError } from '../command.ts';

/**
 * The one rule of every command: `--color always` or `never` decides; without it, a terminal gets colours unless `NO_COLOR` is set to
 * anything, or `TERM` is `dumb`.
 * @param fd where the text is written
 * @throws UsageError for another word
 */
export function isColoured(call: Pick<CommandCall, 'env' | 'text'>, fd: 1 | 2 = 1): boolean {
  const when = call.text('color') ?? 'auto';
  if (when === 'always') return true;
  if (when === 'never') return false;
  if (when !== 'auto') throw new UsageError(`Cannot use --color "${when}": expected auto, always or never`);
  return isatty(fd) && !call.env.NO_COLOR && call.env.TERM !== 'dumb';
}
