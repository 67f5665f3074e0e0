// Which process made which namespace under /run/netns, and which of them may be removed?

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { run, runOk } from './command.ts';

/** Where `ip netns` keeps namespaces by name. */
export const NAMES = '/run/netns';

/** Prefix of the namespaces and directories of tests; the process id of their creator follows. */
export const PREFIX = 'cat-';

/** A network namespace with a name under /run/netns. */
export interface Namespace {
  readonly name: string;
  readonly path: string;
}

/** Creates a namespace and adds its name to the caller's set; `role` is one letter at the end of the name. */
export async function addNamespace(namespaces: Set<string>, role: string): Promise<Namespace> {
  // Names sort by age, as tests beside each other make the number grow beyond one digit.
  const name = `${PREFIX}${process.pid}-${String(++counter).padStart(3, '0')}${role}`;
  await runOk(['ip', 'netns', 'add', name]);
  namespaces.add(name);
  const made = { name, path: path.join(NAMES, name) };
  resetSettings(made);
  return made;
}

/** What the kernel copies from the machine's own namespace into a new one, as it is on a machine that nothing configured. */
const SETTINGS = { ip_forward: '0', 'conf/all/rp_filter': '0', 'conf/default/rp_filter': '0' };

function resetSettings({ path: file }: Namespace): void {
  const netns = openNetns(file);
  try {
    inNetns(netns, () => {
      for (const [key, value] of Object.entries(SETTINGS)) {
        const setting = `/proc/sys/net/ipv4/${key}`;
        if (fs.readFileSync(setting, 'utf8').trim() !== value) fs.writeFileSync(setting, value);
      }
    });
  } finally {
    closeNetns(netns);
  }
}

/** A GC visits every namespace of the machine, for less than this time. */
const VISIT_MS = 50;

/** Kills the processes in a namespace, then removes it: without a name it would still exist while a process is in it. */
export async function deleteNamespace(name: string): Promise<void> {
  for (const pid of await processesIn(name)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has already ended.
    }
  }
  await run(['ip', 'netns', 'delete', name]);
}

/** The same for many: each starts programs that look at every process of the machine, so only a few work at a time. */
export async function deleteNamespaces(names: readonly string[]): Promise<void> {
  const queue = [...names];
  const work = async (): Promise<void> => {
    for (let name = queue.pop(); name !== undefined; name = queue.pop()) await deleteNamespace(name);
  };
  await Promise.all(Array.from({ length: DELETED_AT_ONCE }, work));
}

const DELETED_AT_ONCE = 16;

/** The processes in a namespace, without a GC of another test that visits it. */
async function processesIn(name: string): Promise<number[]> {
  const look = async () => (await run(['ip', 'netns', 'pids', name])).stdout.split('\n').filter(Boolean);
  const first = await look();
  if (first.length === 0) return [];
  await Bun.sleep(VISIT_MS);
  const second = await look();
  return first.filter(pid => second.includes(pid)).map(Number);
}

/** Removes namespaces and directories of test processes that no longer exist; a killed run leaves some. */
export async function sweepLeftovers(): Promise<void> {
  const owner = (name: string): number => Number(/^cat-(\d+)-/.exec(name)?.[1] ?? process.pid);
  const dead = (name: string): boolean => !fs.existsSync(`/proc/${owner(name)}`);
  await deleteNamespaces(allNames().filter(dead));
  for (const name of fs.readdirSync(os.tmpdir()).filter(dead)) {
    fs.rmSync(path.join(os.tmpdir(), name), { recursive: true, force: true });
  }
}

/** The namespaces that this process created and has not removed. */
export function ownLeftovers(): string[] {
  return allNames().filter(name => name.startsWith(`${PREFIX}${process.pid}-`));
}

let counter = 0;

function allNames(): string[] {
  return fs.existsSync(NAMES) ? fs.readdirSync(NAMES) : [];
}
