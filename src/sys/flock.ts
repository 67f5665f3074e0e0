// How do processes take turns on a file?
import { closeSync, fstatSync, openSync } from 'node:fs';
import { Errno } from './errno.ts';
import { errno, libc, SystemError } from './libc.ts';
import { findFlockHolder } from './lock-holder.ts';

/** sys/file.h */
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;

/**
 * Runs a function while holding the exclusive flock(2) of a file, creating the file when it is missing. The lock goes
 * with the descriptor, so a process that dies never leaves one behind.
 * @param deadlineMs longest wait for another holder
 * @throws Error naming the file and the holder when the wait is over
 */
export function withFlock<T>(path: string, deadlineMs: number, work: () => T, mode = 0o644): T {
  const fd = openLock(path, mode);
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

/** Where nothing can be written, a lock that is there can still be held. */
function openLock(path: string, mode: number): number {
  try {
    return openSync(path, 'a+', mode);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EROFS') throw error;
    return openSync(path, 'r');
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
