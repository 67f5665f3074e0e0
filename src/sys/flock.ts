// How do processes take turns on a file?
import { closeSync, fstatSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { Errno } from './errno.ts';
import { errno, libc, SystemError } from './libc.ts';
import { findFlockHolder } from './lock-holder.ts';

/** sys/file.h */
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;

/** How a lock's file is made when it is missing. */
export interface LockFile {
  /** Permissions of the file; for all to read unless given. */
  readonly mode?: number;
  /** Permissions of the directories that it lies in; without them, those have to be there. */
  readonly directoryMode?: number;
}

/**
 * Runs a function while holding the exclusive flock(2) of a file, creating the file when it is missing. The lock goes
 * with the descriptor, so a process that dies never leaves one behind.
 * @param deadlineMs longest wait for another holder
 * @throws Error naming the file and the holder when the wait is over
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
 * Runs a function while holding the exclusive flock(2) of a file that is open already, such as a namespace.
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

function openLock(path: string, { mode = 0o644, directoryMode }: LockFile): number {
  try {
    return openSync(path, 'a+', mode);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // Where nothing can be written, a lock that is there can still be held.
    if (code === 'EROFS') return openSync(path, 'r');
    if (code !== 'ENOENT' || directoryMode === undefined) throw error;
    mkdirSync(dirname(path), { recursive: true, mode: directoryMode });
    return openSync(path, 'a+', mode);
  }
}

function lock(fd: number, path: string, deadlineMs: number): void {
  const giveUpAt = performance.now() + deadlineMs;
  // Polling, because a blocking flock cannot be given up; short naps keep a burst of containers moving.
  for (let napMs = 0.2; ; napMs = Math.min(napMs * 2, 10)) {
    if (libc().flock(fd, LOCK_EX | LOCK_NB) === 0) return;
    const problem = errno();
    if (problem !== Errno.EAGAIN && problem !== Errno.EINTR) throw new SystemError(`lock "${path}"`, problem);
    if (performance.now() > giveUpAt) {
      const holder = findFlockHolder(fstatSync(fd)) ?? 'another process';
      throw new Error(
        `Cannot lock "${path}": ${holder} has it, and did not let go in ${deadlineMs / 1000} s`,
      );
    }
    Bun.sleepSync(napMs);
  }
}
