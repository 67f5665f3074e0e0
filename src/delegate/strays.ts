// Which links of an ADD still run although whoever called them has died?
//
// A link is a process group of its own: it outlives a runner that is killed, and what it makes after DEL has come and gone
// would stay. Its environment says for which interface of which container it works.
import { readdirSync, readFileSync } from 'node:fs';

/** Time for a process that was killed to be gone. */
const GONE_MS = 2_000;
const LOOK_AGAIN_MS = 5;

/** Ends processes that work on an ADD of one of these interfaces of the container, and waits until they are gone. */
export async function endStrays(containerId: string, ifnames: readonly string[]): Promise<void> {
  const strays = listProcesses().filter(pid => pid !== process.pid && worksOn(pid, containerId, ifnames));
  for (const pid of strays) end(pid);
  const until = performance.now() + GONE_MS;
  while (strays.some(isRunning) && performance.now() < until) {
    await new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

function listProcesses(): number[] {
  return readdirSync('/proc').map(Number).filter(Number.isInteger);
}

function worksOn(pid: number, containerId: string, ifnames: readonly string[]): boolean {
  const variables = `\0${read(`/proc/${pid}/environ`)}`;
  const has = (name: string, value: string) => variables.includes(`\0${name}=${value}\0`);
  return (
    has('CNI_CONTAINERID', containerId) &&
    has('CNI_COMMAND', 'ADD') &&
    ifnames.some(ifname => has('CNI_IFNAME', ifname))
  );
}

/** A process that has ended and waits for its parent does nothing any more. */
function isRunning(pid: number): boolean {
  return /^State:\s+[^ZX]/m.test(read(`/proc/${pid}/status`));
}

function end(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has just ended by itself.
  }
}

/** Empty for a process that is gone, or is somebody else's. */
function read(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}
