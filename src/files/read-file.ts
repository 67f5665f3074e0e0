// What is in a file, what is its absolute path, what if it, or its directory, is there or is not, and how is a failure reported?

import { constants, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, isAbsolute, resolve } from 'node:path';
import { RUN_DIR, RUN_DIR_VARIABLE, workingDirectory } from '../cni/directories.ts';
import { attempt, CniError, ErrorCode } from '../cni/errors.ts';

/**
 * A file system error as a protocol error: code 5, with the file, the reason and advice.
 * @param action what could not be done: `write record`
 */
export function fileFailure(action: string, path: string, cause: unknown): CniError {
  const problem = cause instanceof Error ? cause.message : String(cause);
  const advice = adviceFor(action, path, cause as NodeJS.ErrnoException);
  const text = `Cannot ${action} "${path}": ${problem}${advice === undefined ? '' : `; ${advice}`}`;
  return new CniError(ErrorCode.ioFailure, text, { cause });
}

const ROOM = 'free space on its file system';
const IN_THE_WAY = 'use another path, or move away what is at that one';

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
  ENOEXEC: 'the file is no program: name another one',
};

function adviceFor(
  action: string,
  path: string,
  { code = '', syscall = '' }: NodeJS.ErrnoException,
): string | undefined {
  if (code !== 'EACCES' && code !== 'EPERM') return ADVICE[code];
  if (syscall === 'posix_spawn') return 'make that file executable, or name another one';
  const isReading = LOOKS.includes(syscall) || /^(read|list|look|find)\b/.test(action);
  const advice = `let this user ${isReading ? 'read' : 'write'} there, or run as root`;
  // A rootless runtime may show the host's directory, which only the host's root may enter.
  const isOfHost = !isReading && path.startsWith(`${RUN_DIR}/`);
  return isOfHost ? `${advice}, or set ${RUN_DIR_VARIABLE} to a directory of its own` : advice;
}

/**
 * The absolute path. `resolve()` alone is not enough if the working directory was deleted: Bun then starts from the
 * directory of the executable.
 * @param from where a relative path starts; the working directory unless given
 * @throws CniError 5 for a relative path without a directory to start from
 */
export function absolutePath(path: string, from = workingDirectory()): string {
  if (from !== undefined) return resolve(from, path);
  if (isAbsolute(path)) return resolve(path);
  throw new CniError(
    ErrorCode.ioFailure,
    `Cannot find "${path}": it is a relative path, and the working directory was deleted or cannot be reached; change to another directory, or give the path from "/"`,
  );
}

/** Where `ip netns add` creates namespaces. */
const NETNS_DIR = '/run/netns';

/**
 * The path of a network namespace. A bare name is that of a namespace that `ip netns add` made, also after it was deleted, so
 * that DEL derives the same container id as ADD did; a file of that name in the working directory comes first.
 * @param given a path or a bare name; empty for no namespace
 * @throws CniError 5 for a relative path if the working directory cannot be reached
 */
export function namespacePath(given: string, cwd = workingDirectory()): string {
  if (given === '') return '';
  if (given.includes('/')) return absolutePath(given, cwd);
  const beside = cwd === undefined ? undefined : resolve(cwd, given);
  return beside !== undefined && existsSync(beside) ? beside : `${NETNS_DIR}/${given}`;
}

/** A FIFO in the file's place would hold its reader up until a process writes to it: such a one is read as empty. */
const WITHOUT_WAITING = { encoding: 'utf8', flag: constants.O_RDONLY | constants.O_NONBLOCK } as const;

/** Text of a file; undefined if it cannot be read, for whatever reason. */
export function tryRead(path: string): string | undefined {
  return attempt(() => readFileSync(path, WITHOUT_WAITING));
}

/** Codes of errors that mean that a path has no file: one of a name that the file system does not take cannot exist. */
export const NO_SUCH_FILE: readonly string[] = ['ENOENT', 'ENAMETOOLONG'];

/**
 * Text of a file; undefined if there is no file of that path.
 * @param what names it in the error (`backup`)
 * @param absent codes of errors that mean that there is none
 * @throws CniError 5 when it cannot be read: its content may still be needed
 */
export function readIfThere(path: string, what: string, absent = NO_SUCH_FILE): string | undefined {
  return unless(absent, `read ${what}`, path, () => readFileSync(path, WITHOUT_WAITING));
}

/** What the work returns; undefined after an error with one of the codes. @throws CniError 5 after another one */
function unless<T>(codes: readonly string[], action: string, path: string, work: () => T): T | undefined {
  try {
    return work();
  } catch (cause) {
    if (codes.includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw fileFailure(action, path, cause);
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
 * @param absent codes of errors that mean that there are none
 * @throws CniError 5 when it cannot be read
 */
export function namesIfThere(dir: string, what: string, absent = NO_SUCH_FILE): string[] {
  return unless(absent, `list ${what} in`, dir, () => readdirSync(dir)) ?? [];
}

/** Whether a directory is there. Bun's stat throws for a path below a file, even where it may be missing. */
export function isDirectory(path: string): boolean {
  return existsSync(path) && statSync(path).isDirectory();
}

/** Nothing is there: neither the file, nor perhaps the directory that it would be in. */
export const ABSENT: readonly string[] = [...NO_SUCH_FILE, 'ENOTDIR'];
/** Nothing is there that could be read at another moment either: what fails otherwise, as for want of descriptors, may hold anything. */
export const UNREADABLE: readonly string[] = [...ABSENT, 'EISDIR', 'ELOOP', 'EACCES', 'EPERM'];

/** What the work returns; undefined if nothing is there. */
export function ifThere<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (cause) {
    if (ABSENT.includes((cause as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw cause;
  }
}

/** Gives a file its name. @returns false if there is one of that name @throws any other system error */
export function unlessThere(work: () => void): boolean {
  try {
    work();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return false;
  }
}

/** Does work that makes a file; if its directory is missing, makes that, for its owner only, and does it again. @throws the system error */
export function inDirectory<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    return work();
  }
}

/**
 * Like `existsSync`, which also answers "no" when the disk fails or the directory may not be searched. Ask with
 * this wherever "no" means that there is nothing to release.
 * @throws CniError 5 when it cannot be told
 */
export function fileExists(path: string): boolean {
  return unless(ABSENT, 'look for', path, () => statSync(path, { throwIfNoEntry: false })) !== undefined;
}
