// What do we say when the file system refuses, and what can be done about it?
import { CniError, ErrorCode } from '../cni/errors.ts';

/**
 * An error of the file system in terms of the protocol: code 5, with the file, the reason and what to do.
 * @param action what could not be done: `write record`
 */
export function fileFailure(action: string, path: string, cause: unknown): CniError {
  const problem = cause instanceof Error ? cause.message : String(cause);
  const advice = ADVICE[(cause as NodeJS.ErrnoException).code ?? ''];
  const text = `Cannot ${action} "${path}": ${problem}${advice === undefined ? '' : `; ${advice}`}`;
  return new CniError(ErrorCode.ioFailure, text, { cause });
}

const ROOM = 'make room on its file system';
const IN_THE_WAY = 'remove what lies in its place';
const RIGHTS = 'let this user write there, or run as root';

const ADVICE: Readonly<Record<string, string>> = {
  ENOSPC: ROOM,
  EDQUOT: ROOM,
  EROFS: 'mount its file system for writing',
  EACCES: RIGHTS,
  EPERM: RIGHTS,
  EISDIR: IN_THE_WAY,
  ERR_FS_EISDIR: IN_THE_WAY,
  ENOTDIR: IN_THE_WAY,
  EEXIST: IN_THE_WAY,
  ELOOP: IN_THE_WAY,
  EIO: 'the disk may be broken, the log of the kernel says more',
};
