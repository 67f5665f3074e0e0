// What does the journal need of the file system?
import {
  constants,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { CniError, ErrorCode } from '../cni/errors.ts';

/** Names in a directory, sorted, a missing one is empty. Those that begin with a dot are of records being written. @throws CniError 5 */
export function listNames(dir: string): string[] {
  try {
    // An error that is thrown and caught costs more than to look first.
    if (!statSync(dir, { throwIfNoEntry: false })?.isDirectory()) return [];
    return readdirSync(dir)
      .filter(name => !name.startsWith('.'))
      .sort();
  } catch (cause) {
    if (isMissing(cause)) return [];
    throw failure('list records in', dir, cause);
  }
}

/** A new file, open for adding, that only its owner may read; so are directories made on the way. @throws what the system says */
export function openFresh(fresh: string): number {
  const flags = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL;
  try {
    return openSync(fresh, flags, 0o600);
  } catch (error) {
    if (!isMissing(error)) throw error;
    mkdirSync(dirname(fresh), { recursive: true, mode: 0o700 });
    return openSync(fresh, flags, 0o600);
  }
}

/** One write; what a full disk took only in part is cut off again. @throws CniError 5 */
export function writeAll(fd: number, text: string, file: string): void {
  const bytes = Buffer.from(text);
  let written: number;
  try {
    written = writeSync(fd, bytes);
  } catch (cause) {
    throw failure('write record', file, cause);
  }
  if (written === bytes.length) return;
  try {
    ftruncateSync(fd, fstatSync(fd).size - written);
  } catch {
    // A line that is cut off says so by itself.
  }
  throw failure('write record', file, 'the disk took a part of it only');
}

/** True when somebody died while he wrote the last line. */
export function isCutOff(fd: number): boolean {
  const { size } = fstatSync(fd);
  const last = Buffer.alloc(1);
  return size > 0 && readSync(fd, last, 0, 1, size - 1) === 1 && last[0] !== 0x0a;
}

/** True for an error that says there is no such file. */
export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}

/** An error of the system in terms of the protocol: code 5. */
export function failure(action: string, path: string, cause: unknown): CniError {
  const problem = cause instanceof Error ? cause.message : String(cause);
  return new CniError(ErrorCode.ioFailure, `Cannot ${action} "${path}": ${problem}`, { cause });
}
