// How is a file deleted that may not exist?
import { lstatSync, unlinkSync } from 'node:fs';
import { fileFailure } from './failure.ts';

/**
 * Removes a file. A missing one is ignored. A directory in its place is not ours and stays.
 * @param what it is, for the error: `record`
 * @throws CniError 5
 */
export function removeFile(path: string, what = 'file'): void {
  try {
    // Checking first costs less than an error, and on a read-only file system unlink fails even if the file is missing.
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined || found.isDirectory()) return;
    unlinkSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw fileFailure(`remove ${what}`, path, cause);
  }
}
