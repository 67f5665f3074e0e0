// How do processes take turns with a lock on a file?
import { closeSync, constants, fstatSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { Errno } from './errno.ts';
import { errno, libc, SystemError } from './libc.ts';
import { findFlockHolder } from './lock-holder.ts';

/** sys/file.h */
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;

/** Permissions for creating a missing lock file. */
export interface LockFile {
  /** Mode of the file; readable by all unless given. */
  readonly mode?: number;
  /** Mode of missing parent directories; without it, they must exist. */
  readonly directoryMode?: number;
}

/**
 * Runs a function while holding the exclusive flock(2) of a file, creating the file if missing. The lock is released with the
 * descriptor, so a process that dies never leaves one behind.
 * @param deadlineMs maximum wait for another holder
 * @throws Error naming the file and the holder on a timeout
 */
export function withFlock<T>(path: string, deadlineMs: number, work: () => T, file: LockFile = {}): T {
  const fd = openLock(path, file);
  try {
    lock(fd, path, deadlineMs);
    return work();
  } finally {
    closeSync(fd);
  }
}

/**
 * Takes the exclusive flock(2) of a file and keeps it, if necessary for the life of this process.
 * @returns a function that releases it; undefined when another process has it
 */
export function holdFlock(path: string, file: LockFile = {}): (() => void) | undefined {
  const fd = openLock(path, file);
  if (libc().flock(fd, LOCK_EX | LOCK_NB) === 0) return () => closeSync(fd);
  const problem = errno();
  closeSync(fd);
  if (problem === Errno.EAGAIN) return undefined;
  throw new SystemError(`lock "${path}"`, problem);
}

/**
 * Runs a function while holding the exclusive flock(2) of an open file, such as a namespace.
 * @param path names it in the error
 */
export function withOpenFlock<T>(fd: number, path: string, deadlineMs: number, work: () => T): T {
  lock(fd, path, deadlineMs);
  try {
    return work();
  } finally {
    libc().flock(fd, LOCK_UN);
  }
}

/** Others may write to the directory: a symbolic link would make root create or open its target, and a pipe would block. */
const NO_DETOUR = constants.O_NOFOLLOW | constants.O_NONBLOCK;
const WRITING = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | NO_DETOUR;
const READING = constants.O_RDONLY | NO_DETOUR;

function openLock(path: string, { mode = 0o644, directoryMode }: LockFile): number {
  try {
    return openFile(path, WRITING, mode);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // On a read-only file system an existing lock file can still be locked.
    if (code === 'EROFS') return openFile(path, READING, mode);
    if (code !== 'ENOENT' || directoryMode === undefined) throw error;
    mkdirSync(dirname(path), { recursive: true, mode: directoryMode });
    return openFile(path, WRITING, mode);
  }
}

function openFile(path: string, flags: number, mode: number): number {
  try {
    return openSync(path, flags, mode);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ELOOP') throw error;
    throw new Error(`Cannot lock "${path}": it is a symbolic link; remove it`, { cause: error });
  }
}

const LONGEST_NAP_MS = 10;

function lock(fd: number, path: string, deadlineMs: number): void {
  const giveUpAt = performance.now() + deadlineMs;
  // Poll, because a blocking flock cannot time out. The pauses are short, to keep a burst of containers moving.
  for (let napMs = 0.2; ; napMs *= 2) {
    if (libc().flock(fd, LOCK_EX | LOCK_NB) === 0) return;
    const problem = errno();
    if (problem !== Errno.EAGAIN && problem !== Errno.EINTR) throw new SystemError(`lock "${path}"`, problem);
    if (performance.now() > giveUpAt) {
      const holder = findFlockHolder(fstatSync(fd)) ?? 'another process';
      throw new Error(
        `Cannot lock "${path}": ${holder} holds it and did not release it within ${deadlineMs / 1000} s`,
      );
    }
    Bun.sleepSync(Math.min(LONGEST_NAP_MS, napMs));
  }
}
