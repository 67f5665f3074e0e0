// How wide is the terminal that the output goes to?
import { isatty } from 'node:tty';

/** Columns of the terminal; undefined if the output goes elsewhere and `COLUMNS` is not set: then nothing is cut or wrapped. */
export function widthOf({
  env,
}: {
  readonly env: Readonly<Record<string, string | undefined>>;
}): number | undefined {
  const set = Number(env.COLUMNS);
  if (Number.isInteger(set) && set > 0) return set;
  // A terminal whose size was never set says 0.
  return isatty(1) ? process.stdout.columns || undefined : undefined;
}
