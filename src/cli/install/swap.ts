// How is an executable replaced, so that its path always exists, and how is that undone?
import { lstatSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import * as z from 'zod/mini';
import { succeeds } from '../../cni/errors.ts';
import { ifThere } from '../../files/read-file.ts';
import { TOOL_VERSION } from '../command.ts';
import { FILES, Inspector, linkOrCopy, readNote, replaceNote } from './files.ts';
import { takeTurn } from './lay.ts';

export interface WantedSwap {
  /** The executable as runtimes find it; it may be a symbolic link, and may have other names. */
  readonly target: string;
  readonly candidate: string;
  /** Where the candidate came from, for the note; its own path by default. */
  readonly from?: string;
  /** Digests of both, as they were examined. */
  readonly before: string;
  readonly after: string;
}

/** The digest of the file that a path resolves to; undefined if there is no file. */
export function findDigest(path: string): string | undefined {
  return ifThere(() => new Inspector().find(realpathSync(path))?.digest);
}

/** Where the next swap will keep the old executable. */
export function nextKept(target: string): string {
  return join(placeOf(target).dir, nameKept(target, listSwaps(target)));
}

/**
 * Copies the candidate next to the target, keeps the old one, notes both, and renames. If it is interrupted at any point, the
 * target is one of the two, and {@link undoSwap} restores the old one. Other names of the old file are not changed.
 * @throws Error if one of them is not the file that was examined
 */
export function putSwap(wanted: WantedSwap): Swap {
  const { target, candidate, from = candidate, before, after } = wanted;
  const { dir, fresh } = placeOf(target);
  FILES.makeDir(dir);
  return takeTurn(dirname(target), () => {
    refuseChanged(target, before);
    FILES.remove(fresh);
    copyOrName(candidate, fresh, dirname(target), after);
    refuseChanged(fresh, after, from);
    // Without the last swap if it was interrupted before the target was renamed.
    const swaps = listSwaps(target).filter((swap, i, { length }) => i < length - 1 || swap.before !== before);
    const swap: Swap = {
      kept: nameKept(target, swaps),
      before,
      after,
      from,
      time: new Date().toISOString(),
    };
    const kept = join(dir, swap.kept);
    FILES.remove(kept);
    // A symbolic link is kept as one.
    linkOrCopy(target, kept);
    writeSwaps(target, [...swaps, swap]);
    FILES.rename(fresh, target);
    FILES.sync(dirname(target));
    return swap;
  });
}

/**
 * What an undo found: it restored the old executable, or this was already in place, because the swap or another undo was
 * interrupted.
 */
interface Undone {
  readonly swap: Swap;
  readonly how: 'restored' | 'in place';
}

/**
 * Restores the target from before the last swap; if interrupted at any point, it can be repeated.
 * @param force also if the target was changed since
 * @throws Error if there is nothing to undo, or the target was changed since
 */
export function undoSwap(target: string, force: boolean): Undone {
  return takeTurn(dirname(target), () => {
    const { swap, how } = planUndo(target, force);
    const { dir, fresh } = placeOf(target);
    const kept = join(dir, swap.kept);
    if (how === 'restored') FILES.rename(kept, target);
    FILES.sync(dirname(target));
    FILES.remove(kept);
    FILES.remove(fresh);
    writeSwaps(target, listSwaps(target).slice(0, -1));
    return { swap, how };
  });
}

/** What {@link undoSwap} would do. @throws like undoSwap */
export function planUndo(target: string, force: boolean): Undone {
  const cannot = (why: string) => new Error(`Cannot undo the swap of "${target}": ${why}`);
  const swap = listSwaps(target).at(-1);
  const { dir, note } = placeOf(target);
  if (swap === undefined) throw cannot(`none is recorded in "${note}"`);
  const kept = join(dir, swap.kept);
  const now = findDigest(target);
  if (now === swap.before) return { swap, how: 'in place' };
  if (now !== undefined && now !== swap.after && !force)
    throw cannot(`it has been changed since; --force restores "${kept}"`);
  if (lstatSync(kept, { throwIfNoEntry: false }) === undefined) throw cannot(`there is no "${kept}"`);
  return { swap, how: 'restored' };
}

function nameKept(target: string, swaps: readonly Swap[]): string {
  return `${basename(target)}.${swaps.length + 1}`;
}

function refuseChanged(path: string, digest: string, name = path): void {
  if (findDigest(path) === digest) return;
  throw new Error(`Cannot swap: "${name}" was changed during the examination; try again`);
}

/**
 * Multi-call executables must stay one file, by which they recognise their own plugins. So a hard link is made if the directory
 * already has that file.
 */
function copyOrName(candidate: string, fresh: string, dir: string, digest: string): void {
  const { size } = statSync(candidate);
  const there = readdirSync(dir, { withFileTypes: true }).find(entry => {
    const path = join(dir, entry.name);
    return entry.isFile() && lstatSync(path).size === size && findDigest(path) === digest;
  });
  // A file system may have no hard links.
  if (there && succeeds(() => FILES.link(join(dir, there.name), fresh))) return;
  FILES.copy(candidate, fresh);
}

const Swap = z.object({
  /** Name of the old executable in the directory of swaps. */
  kept: z.string().check(z.regex(/^(?!\.\.?$)[^/\0]+$/)),
  /** Digests of the old and the new executable. */
  before: z.string(),
  after: z.string(),
  /** Path that the new executable came from. */
  from: z.string(),
  time: z.string(),
});
type Swap = z.output<typeof Swap>;

const Note = z.looseObject({ catena: z.string(), swaps: z.array(Swap) });

/**
 * Where the swaps of one executable are noted, and old executables kept. Runtimes do not read that directory. `fresh` is the new
 * executable before it is renamed into place.
 * @param target an executable in a directory of `CNI_PATH`
 */
export function placeOf(target: string) {
  const dir = join(dirname(target), '.catena-swap');
  const name = basename(target);
  return { dir, fresh: join(dir, `${name}.new`), note: join(dir, `${name}.json`) };
}

/** The swaps of an executable that can be undone, oldest first. @throws Error if the note cannot be read */
export function listSwaps(target: string): Swap[] {
  return [...(readNote(placeOf(target).note, 'a record of swaps', Note)?.swaps ?? [])];
}

/** Writes the note atomically, or removes it if there are no swaps. */
function writeSwaps(target: string, swaps: readonly Swap[]): void {
  const { dir, note } = placeOf(target);
  if (swaps.length) replaceNote(note, { catena: TOOL_VERSION, swaps }, `${note}.new`);
  else {
    FILES.remove(note);
    FILES.removeDir(dir);
  }
}
