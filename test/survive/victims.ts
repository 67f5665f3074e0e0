// Has a process ended, and what if it has not?

import fs from 'node:fs';
import { childrenOf } from '../helpers/children.ts';
import { until } from '../helpers/until.ts';

const END_MS = 10_000;

/** Waits until the process has ended; kills it if it does not end in time. */
export async function hasEnded(pid: number): Promise<boolean> {
  const until = Date.now() + END_MS;
  while (fs.existsSync(`/proc/${pid}`)) {
    if (isZombie(pid)) return true;
    if (Date.now() > until) {
      end(pid);
      return false;
    }
    await Bun.sleep(5);
  }
  return true;
}

/** Ended, but its adoptive parent has not reaped it yet. */
function isZombie(pid: number): boolean {
  try {
    return / Z /.test(fs.readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/^.*\)/, ''));
  } catch {
    return true;
  }
}

/**
 * The worker that serves the daemon's next call. While a call takes long, as beside other programs, a daemon starts a second one, and either
 * of them may serve the next: all but one are ended.
 */
export async function workerOf(daemon: number): Promise<number> {
  const [worker, ...spare] = childrenOf(daemon);
  if (worker === undefined) throw new Error('Cannot identify the worker: the daemon has no children');
  spare.forEach(end);
  await until(() => childrenOf(daemon).length === 1);
  return worker;
}

/** Kills it. */
export function end(pid: number): void {
  signal(pid, 'SIGKILL');
}

/** Sends it a signal, if it exists. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has already ended.
  }
}
