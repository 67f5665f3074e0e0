// What is in a file, if there is one?
import { constants, readFileSync } from 'node:fs';
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
