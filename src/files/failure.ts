// How do we report a file system error, with advice?
import { CniError, ErrorCode } from '../cni/errors.ts';

/**
 * A file system error as a protocol error: code 5, with the file, the reason and advice.
 * @param action what could not be done: `write record`
 */
export function fileFailure(action: string, path: string, cause: unknown): CniError {
  const problem = cause instanceof Error ? cause.message : String(cause);
  const advice = adviceFor(action, cause as NodeJS.ErrnoException);
  const text = `Cannot ${action} "${path}": ${problem}${advice === undefined ? '' : `; ${advice}`}`;
  return new CniError(ErrorCode.ioFailure, text, { cause });
}

const ROOM = 'free space on its file system';
const IN_THE_WAY = 'remove the file at that path';

/** System calls that only read. */
const LOOKS = ['scandir', 'opendir', 'stat', 'lstat', 'readlink', 'read'];

const ADVICE: Readonly<Record<string, string>> = {
  ENOSPC: ROOM,
  EDQUOT: ROOM,
  EROFS: 'remount its file system read-write',
  EISDIR: IN_THE_WAY,
  ERR_FS_EISDIR: IN_THE_WAY,
  ENOTDIR: IN_THE_WAY,
  EEXIST: IN_THE_WAY,
  ELOOP: IN_THE_WAY,
  EIO: 'the disk may be faulty, see the kernel log',
};

function adviceFor(action: string, { code = '', syscall = '' }: NodeJS.ErrnoException): string | undefined {
  if (code !== 'EACCES' && code !== 'EPERM') return ADVICE[code];
  const isReading = LOOKS.includes(syscall) || /^(read|list|look|find)\b/.test(action);
  return `let this user ${isReading ? 'read' : 'write'} there, or run as root`;
}
