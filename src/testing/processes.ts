// Which processes run in a namespace, or belong to a group?
import { readdirSync, readFileSync, statSync } from 'node:fs';

/** Processes other than this one in the network namespaces, by the inodes of those. */
export function processesIn(inodes: readonly number[]): number[] {
  return allProcesses().filter(pid => {
    try {
      return inodes.includes(statSync(`/proc/${pid}/ns/net`).ino);
    } catch {
      return false;
    }
  });
}

/** Processes of a process group that have not ended. */
export function processesOfGroup(group: number): number[] {
  return allProcesses().filter(pid => {
    const [state, , pgrp] = readStat(pid);
    return Number(pgrp) === group && state !== 'Z';
  });
}

function allProcesses(): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
    .map(Number);
}

/** State, parent and group: what follows the name, which may hold anything. */
function readStat(pid: number): string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return [];
  }
}
