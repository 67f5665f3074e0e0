// Which processes has a process started?
import { readdirSync, readFileSync } from 'node:fs';

/**
 * Ids of the processes that a process has started and that still run; none if it has ended.
 *
 * They are in the order in which each of its threads started them (proc(5), `children`). Their ids are not: the kernel begins
 * again at 300 after `pid_max`.
 */
export function childrenOf(pid: number): number[] {
  return threadsOf(pid).flatMap(thread =>
    readIfThere(`/proc/${pid}/task/${thread}/children`).split(' ').filter(Boolean).map(Number),
  );
}

function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

function readIfThere(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
