// How does a file get its name only when it is whole?
//
// It is written under another name, then renamed: whoever looks at any moment finds the old file or the new one. A
// process that is killed in between leaves the other name behind, which says who that was.
import {
  closeSync,
  constants,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileFailure } from './failure.ts';
import { unfinishedName } from './unfinished.ts';

/** How a file is written; only its owner may read it. */
export interface PutOptions {
  /** What it is, for the error: `record`. */
  readonly what?: string;
  /**
   * Where it is written first, on the same file system: a name of its own beside its place unless given. A fixed name is for
   * those who hold a lock, or are alone with the file; what lies there goes.
   */
  readonly unfinished?: string;
  /** Wait until the disk has it. */
  readonly sync?: boolean;
}

/**
 * Puts a file in its place, and what lies there away. Directories on the way are made, for their owner only.
 * @throws CniError 5; nothing is left behind then
 */
export function putFile(path: string, content: string | Uint8Array, options: PutOptions = {}): void {
  try {
    closeSync(putOpenFile(path, content, options));
  } catch (cause) {
    throw fileFailure(`write ${options.what ?? 'file'}`, path, cause);
  }
}

/**
 * Like {@link putFile}, but leaves the file open for reading and adding.
 * @returns its descriptor
 * @throws what the system says; nothing is left behind then
 */
export function putOpenFile(
  path: string,
  content: string | Uint8Array,
  { unfinished, sync = false }: PutOptions = {},
): number {
  const fresh = unfinished ?? join(dirname(path), unfinishedName());
  const fd = writeOverLeftover(fresh, content, sync);
  try {
    inDirectory(path, () => renameSync(fresh, path));
    return fd;
  } catch (error) {
    closeSync(fd);
    discard(fresh);
    throw error;
  }
}

/**
 * Writes a file that is not there yet, whole.
 * @returns its descriptor
 * @throws what the system says; nothing is left behind then
 */
export function writeNewFile(path: string, content: string | Uint8Array, sync = false): number {
  const flags = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL;
  const fd = inDirectory(path, () => openSync(path, flags, 0o600));
  try {
    // Not writeSync: a disk that is nearly full takes a part of it, and says so only when asked to take the rest.
    writeFileSync(fd, content);
    if (sync) fsyncSync(fd);
    return fd;
  } catch (error) {
    closeSync(fd);
    discard(path);
    throw error;
  }
}

/**
 * Like {@link writeNewFile}, for a name that a crash may have left a file under. Such a leftover may have other names by now:
 * it is taken away, never written to.
 */
export function writeOverLeftover(path: string, content: string | Uint8Array, sync = false): number {
  try {
    return writeNewFile(path, content, sync);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    rmSync(path, { force: true });
    return writeNewFile(path, content, sync);
  }
}

function inDirectory<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    return work();
  }
}

/** Without hiding why the file could not be put in its place. */
function discard(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // It is swept when this process has ended.
  }
}
