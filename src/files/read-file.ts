// What is in a file, if there is one?
import { constants, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { fileFailure } from './failure.ts';

/** A FIFO in the file's place would hold its reader up until a process writes to it: such a one is read as empty. */
const WITHOUT_WAITING = { encoding: 'utf8', flag: constants.O_RDONLY | constants.O_NONBLOCK } as const;

/** Text of a file; undefined if it cannot be read, for whatever reason. */
export function tryRead(path: string): string | undefined {
  try {
    return readFileSync(path, WITHOUT_WAITING);
  } catch {
    return undefined;
  }
}

/**
 * Text of a file; undefined if there is no file of that path.
 * @param what names it in the error (`backup`)
 * @param absent codes of errors that mean that there is none
 * @throws CniError 5 when it cannot be read: its content may still be needed
 */
export function readIfThere(
  path: string,
  what: string,
  absent: readonly string[] = ['ENOENT'],
): string | undefined {
  try {
    return readFileSync(path, WITHOUT_WAITING);
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException;
    if (absent.includes(code)) return undefined;
    throw fileFailure(`read ${what}`, path, cause);
  }
}

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
