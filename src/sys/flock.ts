// How do processes take turns on a file?
import { closeSync, openSync } from 'node:fs';
import { Errno } from './errno.ts';
import { errno, libc, SystemError } from './libc.ts';

/** sys/file.h */
const LOCK_EX = 2;
const LOCK_NB = 4;

/**
 * Runs a function while holding the exclusive flock(2) of a file, creating the file when it is missing. The lock goes
 * with the descriptor, so a process that dies never leaves one behind.
 * @param deadlineMs longest wait for another holder
 * @throws Error naming the file when the wait is over
 */
export function withFlock<T>(path: string, deadlineMs: number, work: () => T, mode = 0o644): T {
  const fd = openSync(path, 'a+', mode);
  try {
    lock(fd, path, deadlineMs);
    return work();
  } finally {
    closeSync(fd);
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
      throw new Error(
        `Cannot lock "${path}": another process has held it for ${deadlineMs / 1000} s; see lslocks`,
      );
    }
    Bun.sleepSync(napMs);
  }
}
