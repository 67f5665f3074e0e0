// Which process made which namespace under /run/netns, and which of them may be removed?

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { closeNetns, createNetnsAt, inNetns, openNetns, unmountNetns } from '../../src/sys/netns.ts';
import { TEST_PATH } from './command.ts';

/** Where `ip netns` keeps namespaces by name. */
export const NAMES = '/run/netns';

/** Prefix of the namespaces and directories of tests; the process id of their creator follows. */
export const PREFIX = 'cat-';

/** A network namespace with a name under /run/netns. */
export interface Namespace {
  readonly name: string;
  readonly path: string;
}

/**
 * Creates a namespace and adds its name to the caller's set; `role` is one letter at the end of the name. Without `ip netns`, as are all
 * the small things here: a run does them tens of thousands of times, and a process costs five times as much as the work.
 */
export function addNamespace(namespaces: Set<string>, role: string): Namespace {
  // Names sort by age, as tests beside each other make the number grow beyond one digit.
  const name = `${PREFIX}${process.pid}-${String(++counter).padStart(3, '0')}${role}`;
  const made = { name, path: path.join(NAMES, name) };
  if (counter === 1) addByIp(name);
  else createNetnsAt(made.path);
  namespaces.add(name);
  visit(made, resetSettings);
  return made;
}

/**
 * The first one: `ip netns`, which tests also use, then makes the directory a mount of its own. It would do so later otherwise, and hide
 * what is mounted there.
 */
function addByIp(name: string): void {
  const { success, stderr } = Bun.spawnSync(['ip', 'netns', 'add', name], { env: { PATH: TEST_PATH } });
  if (!success) throw new Error(`Cannot make a network namespace: ${stderr}`);
}

/** Runs a function, which must be synchronous, inside a namespace. */
export function visit<T>(
  { path: file }: Namespace,
  body: () => T extends PromiseLike<unknown> ? never : T,
): T {
  const netns = openNetns(file);
  try {
    return inNetns(netns, body);
  } finally {
    closeNetns(netns);
  }
}

/** Asks the kernel about the devices, addresses and routes of a namespace. */
export function look<T>(ns: Namespace, question: (route: NetlinkSocket) => T): T {
  const route: NetlinkSocket = visit(ns, () => new NetlinkSocket(NETLINK_ROUTE));
  try {
    return question(route);
  } finally {
    route.close();
  }
}

/** What the kernel copies from the machine's own namespace into a new one, as it is on a machine that nothing configured. */
const SETTINGS = { ip_forward: '0', 'conf/all/rp_filter': '0', 'conf/default/rp_filter': '0' };

function resetSettings(): void {
  for (const [key, value] of Object.entries(SETTINGS)) {
    const setting = `/proc/sys/net/ipv4/${key}`;
    if (fs.readFileSync(setting, 'utf8').trim() !== value) fs.writeFileSync(setting, value);
  }
}

/** A GC visits every namespace of the machine, for less than this time. */
const VISIT_MS = 50;

/** Kills the processes in namespaces, then removes these: without a name one would still exist while a process is in it. */
export async function deleteNamespaces(names: readonly string[]): Promise<void> {
  const files = names.map(name => path.join(NAMES, name)).filter(file => fs.existsSync(file));
  for (const pid of await processesIn(files)) tryTo(() => process.kill(pid, 'SIGKILL'));
  for (const file of files) removeName(file);
}

/** A test may have mounted another namespace on it. */
function removeName(file: string): void {
  while (tryTo(() => unmountNetns(file) ?? true));
  fs.rmSync(file, { force: true });
}

/** The processes in namespaces, without a GC of another test that visits them. */
async function processesIn(files: readonly string[]): Promise<number[]> {
  const inodes = new Set(files.map(file => fs.statSync(file).ino));
  const inodeOf = (pid: number) => tryTo(() => fs.statSync(`/proc/${pid}/ns/net`).ino);
  const isIn = (pid: number): boolean => pid !== process.pid && inodes.has(inodeOf(pid) ?? 0);
  const first = fs.readdirSync('/proc').map(Number).filter(isIn);
  if (first.length > 0) await Bun.sleep(VISIT_MS);
  return first.filter(isIn);
}

/** Undefined if it has already ended, or gone. */
function tryTo<T>(body: () => T): T | undefined {
  try {
    return body();
  } catch {
    return undefined;
  }
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

/** Removes them at once, when the process ends. */
export function removeOwn(): void {
  for (const name of ownLeftovers()) removeName(path.join(NAMES, name));
}

let counter = 0;

function allNames(): string[] {
  return fs.existsSync(NAMES) ? fs.readdirSync(NAMES) : [];
}
