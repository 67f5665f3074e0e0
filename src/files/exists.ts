// Is there a file of that path, or can it not be told?
import { statSync } from 'node:fs';
import { fileFailure } from './failure.ts';

/** Nothing is there: neither the file, nor perhaps the directory that it would be in. */
const ABSENT: readonly (string | undefined)[] = ['ENOENT', 'ENOTDIR'];

/**
 * Like `existsSync`, which also answers "no" when the disk fails or the directory may not be searched. Ask with
 * this wherever "no" means that there is nothing to release.
 * @throws CniError 5 when it cannot be told
 */
export function fileExists(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (cause) {
    if (ABSENT.includes((cause as NodeJS.ErrnoException).code)) return false;
    throw fileFailure('look for', path, cause);
  }
}
