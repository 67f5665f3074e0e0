// How does one executable take another one's place, so that nobody ever finds neither, and how does it give it back?
import { lstatSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type Files, REAL_FILES } from './files.ts';
import { Inspector } from './identity.ts';
import { takeTurn } from './lay.ts';
import { listSwaps, placeOf, type Swap, writeSwaps } from './swap-note.ts';

/** What is to take whose place. */
export interface WantedSwap {
  /** The executable as runtimes find it; it may be a symbolic link, and have other names. */
  readonly target: string;
  readonly candidate: string;
  /** Where the candidate came from, for the note; its own path unless given. */
  readonly from?: string;
  /** Digests of both, as they were examined. */
  readonly before: string;
  readonly after: string;
}

/** The digest of what runs under a path; undefined when there is no file. */
export function findDigest(path: string): string | undefined {
  try {
    return new Inspector().find(realpathSync(path))?.digest;
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw cause;
  }
}

/** Where the old one of the next swap will be. */
export function nextKept(target: string): string {
  return join(placeOf(target).dir, nameKept(target, listSwaps(target)));
}

/**
 * Copies the candidate beside the target, keeps the old one, notes both, and renames. Ended at any point, the target is
 * one of the two, and {@link undoSwap} makes it the old one. Other names of the old file stay what they are.
 * @param version of this tool, for the note
 * @throws Error when one of them is not what was examined
 */
export function putSwap(wanted: WantedSwap, version: string, files: Files = REAL_FILES): Swap {
  const { target, candidate, from = candidate, before, after } = wanted;
  const { dir, fresh } = placeOf(target);
  files.makeDir(dir);
  return takeTurn(dirname(target), () => {
    refuseChanged(target, before);
    files.remove(fresh);
    copyOrName(candidate, fresh, dirname(target), after, files);
    refuseChanged(fresh, after, from);
    const swaps = settled(listSwaps(target), before);
    const swap: Swap = {
      kept: nameKept(target, swaps),
      ...{ before, after },
      from,
      time: new Date().toISOString(),
    };
    keep(target, join(dir, swap.kept), files);
    writeSwaps(target, [...swaps, swap], version, files);
    files.rename(fresh, target);
    files.sync(dirname(target));
    return swap;
  });
}

/** What an undo found: the old one is back, or was in place, since the swap, or another undo, was cut off. */
export interface Undone {
  readonly swap: Swap;
  readonly how: 'restored' | 'in place';
}

/**
 * Makes the target what it was before the last swap; ended at any point, it can be repeated.
 * @param force whatever is there now
 * @throws Error when there is nothing to undo, or somebody else has changed the target since
 */
export function undoSwap(target: string, force: boolean, version: string, files: Files = REAL_FILES): Undone {
  return takeTurn(dirname(target), () => {
    const { swap, how } = planUndo(target, force);
    const { dir, fresh } = placeOf(target);
    const kept = join(dir, swap.kept);
    if (how === 'restored') files.rename(kept, target);
    files.sync(dirname(target));
    files.remove(kept);
    files.remove(fresh);
    writeSwaps(target, listSwaps(target).slice(0, -1), version, files);
    return { swap, how };
  });
}

/** What {@link undoSwap} would do. @throws as it does */
export function planUndo(target: string, force: boolean): Undone {
  const cannot = (why: string) => new Error(`Cannot undo the swap of "${target}": ${why}`);
  const swap = listSwaps(target).at(-1);
  const { dir, note } = placeOf(target);
  if (swap === undefined) throw cannot(`none is on record in "${note}"`);
  const kept = join(dir, swap.kept);
  const now = findDigest(target);
  if (now === swap.before) return { swap, how: 'in place' };
  if (now !== undefined && now !== swap.after && !force)
    throw cannot(`it has been changed since; --force puts "${kept}" in its place`);
  if (lstatSync(kept, { throwIfNoEntry: false }) === undefined) throw cannot(`there is no "${kept}"`);
  return { swap, how: 'restored' };
}

/** Without the last one, if that was cut off before the target was renamed. */
function settled(swaps: readonly Swap[], now: string): Swap[] {
  return swaps.filter((swap, i) => i < swaps.length - 1 || swap.before !== now);
}

function nameKept(target: string, swaps: readonly Swap[]): string {
  return `${basename(target)}.${swaps.length + 1}`;
}

function refuseChanged(path: string, digest: string, name = path): void {
  if (findDigest(path) === digest) return;
  throw new Error(`Cannot swap: "${name}" was changed while it was examined; try again`);
}

/** Executables with many names stay one file, which is how they know their own: a name more, where one is there. */
function copyOrName(candidate: string, fresh: string, dir: string, digest: string, files: Files): void {
  const { size } = statSync(candidate);
  const there = readdirSync(dir, { withFileTypes: true }).find(entry => {
    const path = join(dir, entry.name);
    return entry.isFile() && lstatSync(path).size === size && findDigest(path) === digest;
  });
  if (there && linked(join(dir, there.name), fresh, files)) return;
  files.copy(candidate, fresh);
}

/** A symbolic link is kept as one. */
function keep(target: string, kept: string, files: Files): void {
  files.remove(kept);
  if (!linked(target, kept, files)) files.copy(target, kept);
}

/** False where the file system has no second names. */
function linked(path: string, name: string, files: Files): boolean {
  try {
    files.link(path, name);
    return true;
  } catch {
    return false;
  }
}
