// How do tests get namespaces that are always removed in the end?
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import type { Place } from '../lab/lab.ts';
import { getLink, setLink } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, createNetnsAt, inNetns, openNetns, unmountNetns } from '../sys/netns.ts';
import { killProcess, processesIn } from './run-in.ts';

/** The directory that `ip netns` also uses, so that an interrupted test can be inspected. */
const DIR = '/run/netns';

/** A network namespace of a test. */
export interface Namespace extends Place {
  readonly path: string;
}

/**
 * Creates an empty network namespace.
 * @param role one letter at the end of its name
 * @throws Error when the process lacks permission
 */
export function createNamespace(role: string): Namespace {
  removeEarlierNamespaces();
  const name = `cat-${process.pid}-t${++counter}${role}`;
  const path = `${DIR}/${name}`;
  try {
    mkdirSync(DIR, { recursive: true });
    createNetnsAt(path);
  } catch (cause) {
    rmSync(path, { force: true });
    throw new Error(
      'Cannot create a network namespace: run as root, or inside unshare -Urnm with a tmpfs on /run',
      { cause },
    );
  }
  made.add(name);
  const netns = openNetns(path);
  const route = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  const netfilter = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
  return { name, path, netns, route, netfilter };
}

/** Brings the loopback device up, as on a real host. */
export function raiseLoopback({ route }: Namespace): void {
  setLink(route, getLink(route, 'lo').index, { up: true });
}

/** A GC on this machine visits every namespace, for less than this time. */
const VISIT_MS = 50;

/** Kills the processes that stay in the namespace, and removes it. */
export function removeNamespace({ name, netns, route, netfilter }: Namespace): void {
  if (!made.delete(name)) return;
  const found = processesIn([netns.ino]);
  if (found.length > 0) {
    Bun.sleepSync(VISIT_MS);
    for (const pid of processesIn([netns.ino])) if (found.includes(pid)) killProcess(pid);
  }
  route.close();
  netfilter.close();
  closeNetns(netns);
  unlinkNamespace(name);
}

const made = new Set<string>();
let counter = 0;
let swept = false;

/** Removes the namespaces of test processes that were killed. */
function removeEarlierNamespaces(): void {
  if (swept || !existsSync(DIR)) return;
  swept = true;
  for (const name of readdirSync(DIR)) {
    const [, pid] = /^cat-(\d+)-t/.exec(name) ?? [];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) unlinkNamespace(name);
  }
}

function unlinkNamespace(name: string): void {
  const path = `${DIR}/${name}`;
  try {
    unmountNetns(path);
  } catch {
    // It is no longer mounted.
  }
  rmSync(path, { force: true });
}

process.on('exit', () => {
  for (const name of made) unlinkNamespace(name);
});
