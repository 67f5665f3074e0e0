// In which cgroups do a node's services and pods run, and with which weights?
// As on a node of systemd: what a runtime starts is in the group of its service, below `system`; kubelet makes `kubepods`, with classes of pods,
// beside it. All are below one directory of the machine, which ends with it.

import fs from 'node:fs';
import path from 'node:path';
import type { Machine } from '../helpers/machine.ts';

const ROOT = '/sys/fs/cgroup';

/** The controllers' directories of cgroup v1, or the one of v2. */
function hierarchies(): string[] {
  const isV2 = fs.existsSync(`${ROOT}/cgroup.controllers`);
  return isV2 ? [ROOT] : fs.globSync(`${ROOT}/*/`).filter(dir => fs.existsSync(`${dir}/cgroup.procs`));
}

/** As much as so many processes beside it: in a group of the usual weight, all of a node has the share of one. */
const NODE_WEIGHT = 16;

/** Makes the machine's directory, in which kubelet makes its own. */
export function makeGroups({ cgroup }: Machine): void {
  for (const root of hierarchies()) {
    const own = `${root}/${cgroup}`;
    fs.mkdirSync(own, { recursive: true });
    if (fs.existsSync(`${own}/cpu.shares`)) fs.writeFileSync(`${own}/cpu.shares`, String(1024 * NODE_WEIGHT));
    if (root !== ROOT) continue;
    for (const parent of [root, own])
      fs.writeFileSync(`${parent}/cgroup.subtree_control`, '+cpu +cpuset +memory +pids');
    fs.writeFileSync(`${own}/cpu.weight`, String(100 * NODE_WEIGHT));
  }
}

/** The arguments that start a service in its group; what it starts belongs to that, too, but containers. */
export function inGroup({ cgroup }: Machine, service: string, argv: readonly string[]): string[] {
  const groups = hierarchies().map(root => `${root}/${cgroup}/system/${service}`);
  for (const dir of groups) {
    fs.mkdirSync(dir, { recursive: true });
    // Of cgroup v1: without processors and memory, a group takes no process.
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      for (const one of [path.resolve(dir, '../..'), path.resolve(dir, '..'), dir]) inherit(`${one}/${file}`);
    }
  }
  const enter = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"';
  return ['sh', '-c', enter, 'sh', ...groups, '--', ...argv];
}

function inherit(file: string): void {
  if (!fs.existsSync(file) || fs.readFileSync(file, 'utf8').trim() !== '') return;
  fs.writeFileSync(file, fs.readFileSync(path.resolve(path.dirname(file), '..', path.basename(file))));
}

/** The weights of a node's groups, as the kernel has them, by their paths below the machine's directory. */
export function weightsOf({ cgroup }: Machine): string {
  const root = fs.existsSync(`${ROOT}/cpu/${cgroup}`) ? `${ROOT}/cpu/${cgroup}` : `${ROOT}/${cgroup}`;
  const files = fs.globSync(`${root}/{*,system/*,kubepods/*,kubepods/{burstable,}/pod*}/cpu.{shares,weight}`);
  const rows = files.map(file => {
    const group = path.relative(root, path.dirname(file)).replace(/pod[0-9a-f-]{36}/, 'pod');
    return `${group} ${fs.readFileSync(file, 'utf8').trim()}`;
  });
  return [...new Set(rows.sort())].join(', ');
}
