// How do calls of a plugin, in whichever process, take turns at something that they share?
import { runDir } from '../cni/directories.ts';
import { CniError, ErrorCode, tryAgainLater } from '../cni/errors.ts';
import { fileFailure } from '../files/read-file.ts';
import { holdFlock, LockHeld, withFlock } from '../sys/flock.ts';
import type { Call } from './define.ts';

/**
 * Runs a step while no other process of ours runs one under the same lock.
 * @param path of the lock's file; missing directories are made for root alone
 * @param transient whether the file goes with the lock: for those of containers and devices, which would become ever more
 * @throws CniError 11 when the lock is not available in time, 5 when its file cannot be opened or locked; what the step throws otherwise
 */
export function withPluginLock<T>(path: string, step: () => T, transient = false): T {
  let entered = false;
  try {
    return withFlock(
      path,
      () => {
        entered = true;
        return step();
      },
      { mode: 0o600, directoryMode: 0o700, transient },
    );
  } catch (cause) {
    if (entered) throw cause;
    // Errors of the file system say which operation failed, but not what it was for.
    if (cause instanceof Error && 'syscall' in cause) throw fileFailure('lock', path, cause);
    if (cause instanceof LockHeld) throw tryAgainLater(cause.message, { cause });
    throw new CniError(ErrorCode.ioFailure, (cause as Error).message, { cause });
  }
}

/**
 * Runs a step while no other call under this lock works in the container. The namespace itself must not be the lock: its own
 * processes, and every user of the host, can open and hold it.
 * @throws CniError 11 when the lock is not available in time
 */
export function withContainerLock<T>(
  { containerNetns, environment }: Pick<Call, 'containerNetns' | 'environment'>,
  step: () => T,
): T {
  const path = `${runDir(environment)}/container-${containerNetns.ino}.lock`;
  return withPluginLock(path, step, true);
}

/** Takes a lock for work that goes on beside other work. @returns a function that releases it; undefined while another process has it */
export function takePluginLock(path: string): (() => void) | undefined {
  return holdFlock(path, { mode: 0o600, directoryMode: 0o700 });
}
