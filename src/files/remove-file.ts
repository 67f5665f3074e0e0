// How does a file go, also where it may be gone already?
import { lstatSync, rmSync } from 'node:fs';
import { fileFailure } from './failure.ts';

/**
 * Removes a file; an absent one is fine, and a directory in its place is nothing that was put there as a file: it stays.
 * @param what it is, for the error: `record`
 * @throws CniError 5
 */
export function removeFile(path: string, what = 'file'): void {
  try {
    rmSync(path, { force: true });
  } catch (cause) {
    // A file system that is mounted read-only refuses before it looks whether there is anything. A file where a directory
    // should be is no absence: nothing can be kept there.
    if ((cause as NodeJS.ErrnoException).code !== 'ENOTDIR' && isAbsentOrDirectory(path)) return;
    throw fileFailure(`remove ${what}`, path, cause);
  }
}

function isAbsentOrDirectory(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() ?? true;
}
