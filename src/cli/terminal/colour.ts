// Does the output of a command have colours?
import { isatty } from 'node:tty';
import type { Style } from '../../lab/paint.ts';
import { type CommandCall, UsageError } from '../command.ts';

/**
 * The one rule of every command: `--color always` or `never` decides; without it, a terminal gets colours unless `NO_COLOR` is set to
 * anything, or `TERM` is `dumb`.
 * @throws UsageError for another word
 */
export function styleOf(call: Pick<CommandCall, 'env' | 'text'>): Style {
  const when = call.text('color') ?? 'auto';
  if (when === 'always' || when === 'never') return { colour: when === 'always' };
  if (when !== 'auto') throw new UsageError(`Cannot use --color "${when}": expected auto, always or never`);
  return { colour: isatty(1) && !call.env.NO_COLOR && call.env.TERM !== 'dumb' };
}
