// How does a file appear under its name only when it is complete?
//
// It is written to a temporary file, then renamed, so a reader always finds the old file or the new one. A
// process that is killed in between leaves the temporary file, whose name identifies the process.
import {
  closeSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
  linkSync,
  lstatSync,
  openSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { isRunning, thisProcess } from './process-stat.ts';
import { fileFailure, inDirectory, NO_SUCH_FILE, namesIn } from './read-file.ts';

/** How to write a file. */
interface PutOptions {
  /** What it is, for the error: `record`. */
  readonly what?: string;
  /**
   * The temporary file, on the same file system; a unique name beside the final one unless given. A fixed name is only for
   * callers that hold a lock, or are the only writer: an existing file of that name is deleted.
   */
  readonly unfinished?: string;
  /** Wait until the disk has it: after a power failure it would be empty. */
  readonly sync?: boolean;
  /** Who may do what; only this user reads and writes it unless given. */
  readonly mode?: number;
  readonly owner?: { readonly uid: number; readonly gid: number };
}

/**
 * Writes a file, replacing an existing one. Creates missing directories, for their owner only.
 * @throws CniError 5; then nothing is left behind
 */
export function putFile(path: string, content: string | Uint8Array, options: PutOptions = {}): void {
  try {
    replaceFile(path, content, options);
  } catch (cause) {
    throw fileFailure(`write ${options.what ?? 'file'}`, path, cause);
  }
}

/** Like {@link putFile}. @throws the system error; then nothing is left behind */
export function replaceFile(path: string, content: string | Uint8Array, options: PutOptions = {}): void {
  const { unfinished = join(dirname(path), unfinishedName()) } = options;
  writeOverLeftover(unfinished, content, options);
  orNothing(unfinished, () => inDirectory(path, () => renameSync(unfinished, path)));
}

/**
 * Creates a file, complete from the start, if none exists.
 * @throws the system error, EEXIST when the file exists; then nothing is left behind
 */
export function putNewFile(path: string, content: string | Uint8Array, options: PutOptions = {}): void {
  const { unfinished = join(dirname(path), unfinishedName()) } = options;
  writeOverLeftover(unfinished, content, options);
  orNothing(unfinished, () => {
    inDirectory(path, () => nameNewFile(unfinished, path));
    discard(unfinished);
  });
}

/** What file systems say that have no hard links: FAT and its kin, many of FUSE, shares of Windows. */
const NO_LINKS = ['EPERM', 'EOPNOTSUPP', 'ENOTSUP', 'ENOSYS', 'EMLINK'];

/**
 * Gives a complete file its name if there is no file of that name. It may lose its former name, which is to be removed in any case.
 * Where a file can have one name only, a process that is killed in between leaves an empty file.
 * @throws the system error, EEXIST when there is one
 */
export function nameNewFile(unfinished: string, path: string): void {
  try {
    linkSync(unfinished, path);
  } catch (error) {
    if (!NO_LINKS.includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    writeNewFile(path, '');
    orNothing(path, () => renameSync(unfinished, path));
  }
}

/**
 * Creates and writes a whole file that must not exist yet.
 * @throws the system error; then nothing is left behind
 */
export function writeNewFile(path: string, content: string | Uint8Array, options: PutOptions = {}): void {
  const { sync, mode, owner } = options;
  const fd = inDirectory(path, () => openSync(path, 'wx', 0o600));
  orNothing(path, () => {
    try {
      // Not writeSync: on an almost full disk it writes only a part, and the error comes only with the next write.
      writeFileSync(fd, content);
      if (mode !== undefined) fchmodSync(fd, mode);
      if (owner) fchownSync(fd, owner.uid, owner.gid);
      if (sync) fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  });
}

/** Finishes a file. @throws what the work throws; then the file is removed */
function orNothing(path: string, work: () => void): void {
  try {
    work();
  } catch (error) {
    discard(path);
    throw error;
  }
}

/**
 * Like {@link writeNewFile}, for a name under which a crash may have left a file. That file may already have other names, so
 * it is unlinked, never written to.
 */
export function writeOverLeftover(path: string, content: string | Uint8Array, options?: PutOptions): void {
  try {
    writeNewFile(path, content, options);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    rmSync(path, { force: true });
    writeNewFile(path, content, options);
  }
}

/** Waits until the disk has what is in a file, or which names are in a directory. */
export function syncPath(path: string): void {
  const fd = openSync(path, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Ignores errors, so as not to hide why the file could not be written. */
function discard(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // It is swept after this process has ended.
  }
}

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
    if (NO_SUCH_FILE.includes((cause as NodeJS.ErrnoException).code ?? '')) return;
    throw fileFailure(`remove ${what}`, path, cause);
  }
}

/** Writing a file takes milliseconds; one whose writer cannot be seen is abandoned after this long. */
const GIVEN_UP_MS = 10 * 60_000;

const NAME = /^\.catena-(\d+-\d*-\d*)-\d+\.tmp$/;

let count = 0;

/** A unique name for a temporary file, which identifies its writer. */
export function unfinishedName(): string {
  count += 1;
  return `.catena-${writerName()}-${count}.tmp`;
}

/** This process, as a part of the name of what it must not leave behind. */
export function writerName(): string {
  const { pid, start, pidns } = thisProcess();
  // `pid:[4026531836]` is too long for a file name.
  return `${pid}-${start}-${pidns.replace(/\D/g, '')}`;
}

/** Whether the process of that name runs; undefined if it cannot be seen from here. */
export function isWriterRunning(writer: string): boolean | undefined {
  const [pid, start = '', pidns = ''] = writer.split('-');
  const isVisible = pidns !== '' && writerName().endsWith(`-${pidns}`);
  return isVisible ? isRunning({ pid: Number(pid), start, pidns: thisProcess().pidns }) : undefined;
}

/**
 * Removes the temporary files of processes that were killed while they wrote. Those of living processes stay, and so
 * does everything with another name.
 * @param names of the directory's entries, if already known; a missing directory is empty
 * @returns the names that were removed
 */
export function sweepUnfinished(dir: string, names: readonly string[] = namesIn(dir)): string[] {
  return names.filter(name => isAbandoned(dir, name) && removed(join(dir, name)));
}

/**
 * Whether a temporary file that does not identify its writer is too old. Too far in the future counts too: clocks jump.
 * A writer that was merely slow then fails to rename its file, and reports that.
 */
export function isGivenUp(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat !== undefined && Math.abs(Date.now() - stat.mtimeMs) > GIVEN_UP_MS;
}

/** Removes temporary files (by name) that do not identify their writer and are too old. */
export function sweepGivenUp(dir: string, isHalf: (name: string) => boolean): void {
  for (const name of namesIn(dir)) {
    const path = join(dir, name);
    if (isHalf(name) && isGivenUp(path)) rmSync(path, { recursive: true, force: true });
  }
}

function isAbandoned(dir: string, name: string): boolean {
  const [, writer] = NAME.exec(name) ?? [];
  if (writer === undefined) return false;
  const running = isWriterRunning(writer);
  return running === undefined ? isGivenUp(join(dir, name)) : !running;
}

function removed(path: string): boolean {
  try {
    unlinkSync(path);
    return true;
  } catch {
    // Another process removed it, or we lack the permission.
    return false;
  }
}
