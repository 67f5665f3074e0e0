// Is a process stopped, and how do we make sure that it never continues?
import { readdirSync } from 'node:fs';
import { pause } from '../wait.ts';
import { isRunning, type ProcessId, readProcessStat, readRunningStat } from './process-stat.ts';
import { tryRead } from './read-file.ts';

/** Long enough for a process to run again that was stopped only briefly, by a debugger or by strace. */
const SECOND_LOOK_MS = 50;

/**
 * Whether a process is stopped, by SIGSTOP or in a frozen cgroup. False for one in a PID namespace that is not visible from here.
 */
export async function isFrozen(one: ProcessId): Promise<boolean> {
  if (!looksFrozen(one)) return false;
  await pause(SECOND_LOOK_MS);
  return looksFrozen(one);
}

function looksFrozen({ pid, start, pidns }: ProcessId): boolean {
  if (isRunning({ pid, start, pidns }) !== true) return false;
  // proc(5): T is "stopped". The wait channel of a process in a frozen cgroup is a function of the freezer, in both cgroup
  // versions.
  return (
    readProcessStat(pid)?.state === 'T' || /freezer|refrigerator/.test(tryRead(`/proc/${pid}/wchan`) ?? '')
  );
}

/** A killed process may be in the middle of a system call, which it finishes first. */
const LAST_CALL_MS = 300;

/**
 * Kills a process, such as a daemon, and the workers that it has started. One in a frozen cgroup ends only when the cgroup is
 * thawed, but it executes no further instruction in user space.
 * @returns true once all of them were killed, and have ended or had {@link LAST_CALL_MS} to do so; false if that is impossible
 */
export async function endFrozen(one: ProcessId): Promise<boolean> {
  const running = isRunning(one);
  if (running === undefined) return false;
  if (!running) return true;
  const workers = childrenOf(one.pid);
  try {
    // The parent first: it must not notice that its workers end.
    for (const pid of [one.pid, ...workers]) kill(pid);
    for (
      let left = LAST_CALL_MS;
      left > 0 && [one.pid, ...workers].some(pid => readRunningStat(pid));
      left -= 10
    )
      await pause(10);
    return true;
  } catch {
    return false;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function childrenOf(parent: number): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number)
    .filter(pid => readProcessStat(pid)?.parent === parent);
}
