// How does a file go, also where it may be gone already?
import { lstatSync, unlinkSync } from 'node:fs';
import { fileFailure } from './failure.ts';

/**
 * Removes a file; an absent one is fine, and a directory in its place is nothing that was put there as a file: it stays.
 * @param what it is, for the error: `record`
 * @throws CniError 5
 */
export function removeFile(path: string, what = 'file'): void {
  try {
    // To look first costs less than an error, and a file system that is mounted read-only refuses before it looks.
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined || found.isDirectory()) return;
    unlinkSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw fileFailure(`remove ${what}`, path, cause);
  }
}
