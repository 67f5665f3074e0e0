// Which temporary files will never be finished?
import { lstatSync, rmSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { namesIn } from './names-in.ts';
import { isRunning, thisProcess } from './process-id.ts';

/** Writing a file takes milliseconds; one whose writer cannot be seen is abandoned after this long. */
const GIVEN_UP_MS = 10 * 60_000;

const NAME = /^\.catena-(\d+)-(\d*)-(\d*)-\d+\.tmp$/;

let count = 0;

/** A unique name for a temporary file, which identifies its writer. */
export function unfinishedName(): string {
  const { pid, start, pidns } = thisProcess();
  count += 1;
  return `.catena-${pid}-${start}-${digitsOf(pidns)}-${count}.tmp`;
}

/**
 * Removes the temporary files of processes that were killed while they wrote. Those of living processes stay, and so
 * does everything with another name.
 * @param names of the directory's entries, if already known; a missing directory is empty
 * @returns the names that were removed
 */
export function sweepUnfinished(dir: string, names: readonly string[] = namesIn(dir)): string[] {
  return names.filter(name => isAbandoned(dir, name) && removed(join(dir, name)));
}

/**
 * Whether a temporary file that does not identify its writer is too old. Too far in the future counts too: clocks jump.
 * A writer that was merely slow then fails to rename its file, and reports that.
 */
export function isGivenUp(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat !== undefined && Math.abs(Date.now() - stat.mtimeMs) > GIVEN_UP_MS;
}

/** Removes temporary files (by name) that do not identify their writer and are too old. */
export function sweepGivenUp(dir: string, isHalf: (name: string) => boolean): void {
  for (const name of namesIn(dir)) {
    const path = join(dir, name);
    if (isHalf(name) && isGivenUp(path)) rmSync(path, { recursive: true, force: true });
  }
}

function isAbandoned(dir: string, name: string): boolean {
  const [, pid, start = '', pidns = ''] = NAME.exec(name) ?? [];
  if (pid === undefined) return false;
  const own = thisProcess();
  const isVisible = pidns !== '' && pidns === digitsOf(own.pidns);
  const alive = isVisible ? isRunning({ pid: Number(pid), start, pidns: own.pidns }) : undefined;
  return alive === undefined ? isGivenUp(join(dir, name)) : !alive;
}

/** `pid:[4026531836]` is too long for a file name. */
function digitsOf(pidns: string): string {
  return pidns.replace(/\D/g, '');
}

function removed(path: string): boolean {
  try {
    unlinkSync(path);
    return true;
  } catch {
    // Another process removed it, or we lack the permission.
    return false;
  }
}
