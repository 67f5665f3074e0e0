// What is in a directory, if there is one?
import { lstatSync, readdirSync } from 'node:fs';
import { fileFailure } from './failure.ts';

/** Names in a directory; none if it is missing, not a directory or unreadable. */
export function namesIn(dir: string): string[] {
  try {
    // Checking first is cheaper than an error that is thrown and caught.
    return lstatSync(dir, { throwIfNoEntry: false }) ? readdirSync(dir) : [];
  } catch {
    return [];
  }
}

/**
 * Names in a directory; none if it does not exist.
 * @param what names its files in the error (`traces`)
 * @throws CniError 5 when it cannot be read
 */
export function namesIfThere(dir: string, what: string): string[] {
  try {
    return readdirSync(dir);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw fileFailure(`list ${what} in`, dir, cause);
  }
}
