// May the output of a command have colours?
import { isatty } from 'node:tty';
import type { Style } from '../lab/paint.ts';
import type { CommandCall } from './command.ts';

/** On a terminal, unless the user has set NO_COLOR (no-color.org). */
export function styleOf({ env }: Pick<CommandCall, 'env'>): Style {
  return { colour: isatty(1) && !env.NO_COLOR };
}
