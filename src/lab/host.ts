// How are a fake host, its containers and the world outside made and removed, and which of the machine's files do plugins see there?

import { closeSync, existsSync, openSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { join, sep } from 'node:path';
import { ensureDirSync } from 'fs-extra/esm';
import { notesDirs, runDir, workingDirectory } from '../cni/directories.ts';
import { attempt } from '../cni/errors.ts';
import { ANYWHERE, type Ip, parseCidr } from '../net/ip.ts';
import { addAddress } from '../netlink/rtnl/addr.ts';
import { createLink, findLink, getLink, type Link, removeLink, setLink } from '../netlink/rtnl/link.ts';
import { addRoute } from '../netlink/rtnl/route.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { bindMountFd, makeReadOnly, makeWritable, mountTmpfs } from '../sys/mount.ts';
import {
  closeNetns,
  createNetnsAt,
  inNetns,
  type Netns,
  openNetns,
  openOwnNetns,
  unmountNetns,
} from '../sys/netns.ts';
import { kernelFamilies, trySysctl } from '../sys/sysctl.ts';

/** The directory that `ip netns` also uses; the lab of a command has its own copy of it. */
export const NETNS_DIR = '/run/netns';

/** A part of the private ranges (RFC 1918, RFC 4193) that tried networks rarely use. */
const HOST = { 4: '172.31.254.1/24', 6: 'fd00:ca7e::1/64' } as const;
const OUTSIDE = { 4: '172.31.254.2/24', 6: 'fd00:ca7e::2/64' } as const;

/** A network namespace with the sockets needed to inspect it. */
export interface Namespace {
  readonly name: string;
  readonly path: string;
  readonly netns: Netns;
  readonly route: NetlinkSocket;
  readonly netfilter: NetlinkSocket;
}

/** A namespace that exists, with sockets in it. {@link closeNamespace} closes them and the namespace. */
export function openNamespace(name: string, netns: Netns): Namespace {
  const route = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  const netfilter = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
  return { name, path: netns.path, netns, route, netfilter };
}

/** Creates a namespace as a runtime does for a container, with only a loopback device that is down. */
export function createNamespace(name: string, dir = NETNS_DIR): Namespace {
  ensureDirSync(dir);
  const path = join(dir, name);
  createNetnsAt(path);
  return openNamespace(name, openNetns(path));
}

/** A namespace without a path: it ends with the process at the latest, however that ends. @param dir for a moment, it has one here */
export function createNameless(name: string, dir: string): Namespace {
  const made = createNamespace(`${name}-${process.pid}`, dir);
  removePath(made.path);
  return { ...made, name };
}

/** A namespace without any process or mount vanishes with that, and its cables with it. */
export function closeNamespace({ netns, route, netfilter }: Namespace): void {
  route.close();
  netfilter.close();
  closeNetns(netns);
}

/** Closes a namespace that has a path, and removes it. */
export function removeNamespace(place: Namespace): void {
  closeNamespace(place);
  removePath(place.path);
}

export function removePath(path: string): void {
  // It may no longer be mounted.
  attempt(() => unmountNetns(path));
  rmSync(path, { force: true });
}

/** The fake host and its environment. */
export interface Lab {
  readonly host: Namespace;
  readonly outside: Namespace;
  /** Address of the fake host as seen from outside, by family. */
  readonly hostAddress: Readonly<Record<4 | 6, Ip>>;
  readonly outsideAddress: Readonly<Record<4 | 6, Ip>>;
  /** Families that this kernel supports. */
  readonly families: readonly (4 | 6)[];
}

/**
 * Turns the calling process's namespace into the fake host, and connects it to an outside namespace with a veth pair: routes
 * in both directions, but no forwarding yet.
 * @param devices further devices of the host, up and without addresses; the other end of each is outside, under the same name
 */
export function createLab(devices: readonly string[] = []): Lab {
  const host = openNamespace('host', openOwnNetns());
  const outside = createNamespace('outside');
  const families = kernelFamilies();
  setLink(host.route, getLink(host.route, 'lo').index, { up: true });
  const [uplink] = layOutside({ host, outside, families }, 'outside0', HOST, OUTSIDE);
  addDefaultRoutes(host, uplink.index, OUTSIDE, families);
  for (const name of devices) layCable(host, name, outside, name);
  // New namespaces inherit some of these from the machine; a plugin that needs forwarding has to enable it.
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '0');
  trySysctl('net/ipv6/conf/all/forwarding', '0');
  return { host, outside, hostAddress: ipsOf(HOST), outsideAddress: ipsOf(OUTSIDE), families };
}

/** Addresses of one end of a cable, with prefix length. */
type Addresses = Readonly<Record<4 | 6, string>>;

/** Connects a host to a namespace outside, whose default routes lead back to the host. @returns both ends of the cable */
export function layOutside(
  { host, outside, families }: Pick<Lab, 'host' | 'outside' | 'families'>,
  device: string,
  near: Addresses,
  far: Addresses,
): readonly [Link, Link] {
  // Uses up an index there. If both ends had the same one, the kernel would report their connection only a second later
  // (linkwatch_urgent_event in net/core/link_watch.c), and IPv6 waits for that.
  createLink(outside.route, { name: 'unused', kind: 'bridge' });
  setLink(outside.route, getLink(outside.route, 'lo').index, { up: true });
  const ends = layCable(host, device, outside, 'eth0');
  for (const family of families) {
    addAddress(host.route, ends[0].index, parseCidr(near[family]), { nodad: true });
    addAddress(outside.route, ends[1].index, parseCidr(far[family]), { nodad: true });
  }
  addDefaultRoutes(outside, ends[1].index, near, families);
  return ends;
}

function addDefaultRoutes(
  { route }: Namespace,
  oif: number,
  gateways: Addresses,
  families: readonly (4 | 6)[],
): void {
  for (const family of families)
    addRoute(route, { dst: parseCidr(ANYWHERE[family]), gateway: parseCidr(gateways[family]).ip, oif });
}

const STEP_MS = 10;

/**
 * Removes a container as a runtime does, and waits until its devices are also gone from the host, or something has kept the namespace
 * open for too long, for example an orphan process.
 */
export async function removeContainer(
  { route }: Namespace,
  container: Namespace,
  remove: () => void,
  patienceMs: number,
): Promise<void> {
  // All devices of a namespace are deleted together, some time after its last user ends. This one shows when that happens.
  const witness = `w${container.name.slice(-12)}`;
  const peer = { name: 'witness', netnsFd: container.netns.fd };
  createLink(route, { name: witness, kind: 'veth', peer });
  remove();
  for (let waited = 0; findLink(route, witness); waited += STEP_MS) {
    if (waited > patienceMs) return removeLink(route, witness);
    await Bun.sleep(STEP_MS);
  }
}

/**
 * A GC on this machine visits every namespace, and a process may end shortly after the plugin: what stays is there at each of so many looks.
 * On a busy machine, both take longer than one pause.
 */
const LOOKS = 10;
const PAUSE_MS = 100;

/** Kills processes that do not end on their own. @param list those that are there @returns the names of their programs */
export function endLasting(list: () => readonly number[]): string[] {
  let left = list();
  for (let look = 0; look < LOOKS && left.length; look++) {
    Bun.sleepSync(PAUSE_MS);
    const now = list();
    left = left.filter(pid => now.includes(pid));
  }
  return left.map(pid => {
    const name = attempt(() => readFileSync(`/proc/${pid}/comm`, 'utf8').trim()) ?? `process ${pid}`;
    attempt(() => process.kill(pid, 'SIGKILL'));
    return name;
  });
}

/**
 * A veth pair between two namespaces, both ends up.
 * @param master index of the bridge that its first end is a port of
 */
export function layCable(
  from: Namespace,
  name: string,
  to: Namespace,
  peer: string,
  master?: number,
): readonly [Link, Link] {
  const pair = { name, kind: 'veth', peer: { name: peer, netnsFd: to.netns.fd } } as const;
  createLink(from.route, master === undefined ? pair : { ...pair, master });
  const ends = [[from, name] as const, [to, peer] as const].map(([{ route, netns }, device]) => {
    // During duplicate address detection, an end has no address that a plugin could use, and a router finds no neighbours.
    inNetns(netns, () => trySysctl(`net/ipv6/conf/${device}/accept_dad`, '0'));
    const link = getLink(route, device);
    setLink(route, link.index, { up: true });
    return link;
  });
  return ends as [Link, Link];
}

/** The addresses without their prefix lengths. */
export function ipsOf(cidrs: Addresses): Record<4 | 6, Ip> {
  return { 4: parseCidr(cidrs[4]).ip, 6: parseCidr(cidrs[6]).ip };
}

/** Directories replaced by empty in-memory file systems: plugins keep leases, locks, caches and sockets there. */
export const FRESH_DIRS = ['/run', '/var/lib', '/tmp'] as const;

/** What plugins have not made in {@link FRESH_DIRS}. @param shown paths that show the machine's files */
export function notOfPlugins(shown: readonly string[]): string[] {
  // The notes that every ADD and GC leave for each other say nothing about a plugin.
  return [NETNS_DIR, ...Object.values(notesDirs(runDir({}))), ...shown];
}

/** File systems that are really the kernel: sysctls are per namespace, and plugins write them. */
const KERNEL_DIRS = ['/proc', '/sys'];

/**
 * Makes the machine's files read-only and {@link FRESH_DIRS} empty, for this process and its children. The process must be in
 * a mount namespace of its own.
 * @param keep paths below the fresh directories that remain visible: executables, for example
 */
export function protectFiles(keep: readonly string[]): void {
  const fresh = FRESH_DIRS.filter(existsSync).map(dir => realpathSync(dir));
  const kept = keep.filter(existsSync).map(dir => realpathSync(dir));
  const covered = kept.filter(path => fresh.some(dir => path.startsWith(dir + sep)));
  // Opened before they are covered, since a descriptor still refers to the original directory.
  const open = [...new Set(covered)].map(path => [path, openSync(path, 'r')] as const);
  const cwd = workingDirectory() ?? '/';
  try {
    makeReadOnly('/');
    for (const dir of KERNEL_DIRS.filter(existsSync)) makeWritable(dir);
    for (const dir of fresh) mountTmpfs(dir, dir === '/tmp' ? 0o1777 : 0o755);
    for (const [path, fd] of open) {
      ensureDirSync(path);
      bindMountFd(fd, path);
    }
    enter(cwd);
  } finally {
    for (const [, fd] of open) closeSync(fd);
  }
}

/** Enters the directory as the lab shows it: the process is still in the covered one, which no longer has a path. */
function enter(dir: string): void {
  try {
    process.chdir(dir);
  } catch {
    process.chdir('/');
  }
}
