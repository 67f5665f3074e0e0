// Which cgroups do the containers of a node have, and how do they end with it?
// Without classes of pods, containerd puts each into `k8s.io`, which all nodes of the machine share, and runc removes it only with
// the container.

import fs from 'node:fs';
import type { Machine } from '../helpers/machine.ts';

const TASKS = '/run/containerd/io.containerd.runtime.v2.task/k8s.io';

/** Ids of the containers that a node has at the moment. */
export function containersOf(machine: Machine): string[] {
  const dir = machine.path(TASKS);
  return fs.existsSync(dir) ? fs.readdirSync(dir) : [];
}

/** Removes the cgroups of containers that have ended with their node, and the parent after the last of all. */
export function removePodCgroups(ids: readonly string[]): void {
  for (const parent of fs.globSync('/sys/fs/cgroup/{,*/}k8s.io/')) {
    for (const id of ids) removeBelow(`${parent}/${id}`);
    if (!fs.readdirSync(parent, { withFileTypes: true }).some(entry => entry.isDirectory()))
      removeEmpty(parent);
  }
}

function removeBelow(dir: string): void {
  if (!fs.existsSync(dir)) return;
  for (const entry of fs.readdirSync(dir, { withFileTypes: true })) {
    if (entry.isDirectory()) removeBelow(`${dir}/${entry.name}`);
  }
  removeEmpty(dir);
}

/** One in which a process is still about to end, or which has just gone, stays as it is. */
function removeEmpty(dir: string): void {
  try {
    fs.rmdirSync(dir);
  } catch (error) {
    if (!['EBUSY', 'ENOENT', 'ENOTEMPTY'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}
