// Which processes run in a namespace?
import { readdirSync, readFileSync, statSync } from 'node:fs';

/** Processes in the network namespaces, given by inode, except this process. */
export function processesIn(inodes: readonly number[]): number[] {
  return allProcesses().filter(pid => {
    try {
      return inodes.includes(statSync(`/proc/${pid}/ns/net`).ino);
    } catch {
      return false;
    }
  });
}

/** The name of a process's program. */
export function nameOfProcess(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return `process ${pid}`;
  }
}

function allProcesses(): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
    .map(Number);
}
