// Which files are half written, and who will never finish them?
import { lstatSync, rmSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { namesIn } from './names-in.ts';
import { isRunning, thisProcess } from './process-id.ts';

/** A file takes its writer milliseconds; one whose writer cannot be seen is given up after this long. */
const GIVEN_UP_MS = 10 * 60_000;

const NAME = /^\.catena-(\d+)-(\d*)-(\d*)-\d+\.tmp$/;

let count = 0;

/** A name for a file that is being written. It says by whom, and no other file gets it. */
export function unfinishedName(): string {
  const { pid, start, pidns } = thisProcess();
  count += 1;
  return `.catena-${pid}-${start}-${digitsOf(pidns)}-${count}.tmp`;
}

/**
 * Removes the files that processes left when they were killed while they wrote. Those of processes that live stay, and so
 * does everything of another name.
 * @param names what is in the directory, for those who know already; one that is missing is empty
 * @returns the names of what was removed
 */
export function sweepUnfinished(dir: string, names: readonly string[] = namesIn(dir)): string[] {
  return names.filter(name => isAbandoned(dir, name) && removed(join(dir, name)));
}

/**
 * Whether a half-written file that does not say whose it is has been there for too long. Before or after now: clocks jump.
 * Whoever was only slow fails to rename his file, and says so.
 */
export function isGivenUp(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat !== undefined && Math.abs(Date.now() - stat.mtimeMs) > GIVEN_UP_MS;
}

/** Removes what of a directory is half-written by its name, does not say whose it is, and is given up. */
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

/** `pid:[4026531836]` is too much for the name of a file. */
function digitsOf(pidns: string): string {
  return pidns.replace(/\D/g, '');
}

function removed(path: string): boolean {
  try {
    unlinkSync(path);
    return true;
  } catch {
    // Somebody else did, or nobody may.
    return false;
  }
}
