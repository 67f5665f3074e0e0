// Does a daemon act on the notes?
import { join } from 'node:path';
import { holdFlock } from '../../sys/flock.ts';
import { upkeepDir } from './note.ts';

/**
 * Makes this process the one that acts on the notes.
 * @returns a function that gives that up; undefined if another process does
 */
export function becomeKeeper(stateDir: string): (() => void) | undefined {
  return holdFlock(join(upkeepDir(stateDir), 'lock'), { mode: 0o600, directoryMode: 0o700 });
}

/** Whether a process acts on the notes now. */
export function isKept(stateDir: string): boolean {
  try {
    const release = becomeKeeper(stateDir);
    release?.();
    return release === undefined;
  } catch {
    return false;
  }
}
