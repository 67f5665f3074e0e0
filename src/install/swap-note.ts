// Which executables were replaced, and what was there before?
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import * as z from 'zod/mini';
import { parseObject } from '../cni/json.ts';
import type { Files } from './files.ts';

/** One replacement of an executable. */
export const Swap = z.object({
  /** Name of the old executable in the directory of swaps. */
  kept: z.string().check(z.regex(/^(?!\.\.?$)[^/\0]+$/)),
  /** Digests of the old and the new executable. */
  before: z.string(),
  after: z.string(),
  /** Path that the new executable came from. */
  from: z.string(),
  time: z.string(),
});
export type Swap = z.output<typeof Swap>;

const Note = z.looseObject({ catena: z.string(), swaps: z.array(Swap) });

/** Where the swaps of one executable are noted, and old executables kept. Runtimes do not read that directory. */
export interface SwapPlace {
  readonly dir: string;
  /** The new executable, before it is renamed into place. */
  readonly fresh: string;
  readonly note: string;
}

/** @param target an executable in a directory of `CNI_PATH` */
export function placeOf(target: string): SwapPlace {
  const dir = join(dirname(target), '.catena-swap');
  const name = basename(target);
  return { dir, fresh: join(dir, `${name}.new`), note: join(dir, `${name}.json`) };
}

/** The swaps of an executable that can be undone, oldest first. @throws Error if the note cannot be read */
export function listSwaps(target: string): Swap[] {
  const { note } = placeOf(target);
  let text: string;
  try {
    text = readFileSync(note, 'utf8');
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')) return [];
    throw new Error(`Cannot read "${note}": ${(cause as Error).message}`, { cause });
  }
  const parsed = z.safeParse(Note, parseObject(text, `record of swaps "${note}"`));
  if (parsed.success) return [...parsed.data.swaps];
  throw new Error(`Cannot read "${note}": it is not a record of swaps; remove it by hand`);
}

/** Writes the note atomically, or removes it if there are no swaps. @param version of this tool */
export function writeSwaps(target: string, swaps: readonly Swap[], version: string, files: Files): void {
  const { dir, note } = placeOf(target);
  if (swaps.length) {
    const fresh = `${note}.new`;
    files.remove(fresh);
    files.write(fresh, `${JSON.stringify({ catena: version, swaps }, null, 2)}\n`);
    files.rename(fresh, note);
    files.sync(dir);
  } else {
    files.remove(note);
    files.removeDir(dir);
  }
}
