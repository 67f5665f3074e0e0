// Has a process ended, and what if it has not?

import fs from 'node:fs';

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
