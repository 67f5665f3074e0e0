// What does the journal need from the file system?
import { fstatSync, ftruncateSync, readdirSync, readSync, statSync, writeSync } from 'node:fs';
import { fileFailure } from '../files/failure.ts';

/**
 * Names in a directory, sorted; a missing directory is empty. Names with a leading dot, which are temporary files, are left out.
 * @param withHidden called with these, if there are any
 * @throws CniError 5
 */
export function listNames(dir: string, withHidden?: (names: readonly string[]) => void): string[] {
  try {
    // Checking first is cheaper than an error that is thrown and caught.
    if (!statSync(dir, { throwIfNoEntry: false })) return [];
    const names = readdirSync(dir);
    const visible = names.filter(name => !name.startsWith('.'));
    if (visible.length < names.length) withHidden?.(names.filter(name => name.startsWith('.')));
    return visible.sort();
  } catch (cause) {
    if (isMissing(cause)) return [];
    throw fileFailure('list records in', dir, cause);
  }
}

/** Appends by one write; on a full disk, a partial write is truncated again. @throws CniError 5 */
export function writeAll(fd: number, text: string, file: string): void {
  const bytes = Buffer.from(text);
  let written: number;
  try {
    written = writeSync(fd, bytes);
  } catch (cause) {
    throw fileFailure('write record', file, cause);
  }
  if (written === bytes.length) return;
  try {
    ftruncateSync(fd, fstatSync(fd).size - written);
  } catch {
    // Readers recognise a cut-off line.
  }
  throw fileFailure('write record', file, diskFull());
}

/** True when a process died while it wrote the last line. */
export function isCutOff(fd: number): boolean {
  const { size } = fstatSync(fd);
  const last = Buffer.alloc(1);
  return size > 0 && readSync(fd, last, 0, 1, size - 1) === 1 && last[0] !== 0x0a;
}

/** True for an error that says there is no such file. */
export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}

/** After a partial write, the kernel would report this only on the next one. */
function diskFull(): Error {
  return Object.assign(new Error('it was written only in part'), { code: 'ENOSPC' });
}
