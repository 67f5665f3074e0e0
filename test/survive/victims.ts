// Has a process ended, and what if not?

import fs from 'node:fs';

const END_MS = 10_000;

/** Waits until it has; one that has not by then is killed. */
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

/** Whoever adopted it has not asked how it ended. */
function isZombie(pid: number): boolean {
  try {
    return / Z /.test(fs.readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/^.*\)/, ''));
  } catch {
    return true;
  }
}

/** Kills it. */
export function end(pid: number): void {
  signal(pid, 'SIGKILL');
}

/** Sends it a signal, if it is there. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended by itself.
  }
}
