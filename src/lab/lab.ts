// Where is a chain tried: on which fake host, with which containers and outside world, and which of the machine's files?
import { closeSync, existsSync, openSync, realpathSync, writeFileSync } from 'node:fs';
import { sep } from 'node:path';
import { ensureDirSync } from 'fs-extra/esm';
import { workingDirectory } from '../cni/directories.ts';
import { parseCidr } from '../net/cidr.ts';
import { type Ip, parseIp } from '../net/ip.ts';
import { addAddress } from '../netlink/rtnl/addr.ts';
import { createLink, getLink, setLink } from '../netlink/rtnl/link.ts';
import { addRoute } from '../netlink/rtnl/route.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { bindMountFd, makeReadOnly, makeWritable, mountTmpfs } from '../sys/mount.ts';
import { createNetnsAt, inNetns, type Netns, openNetns, openOwnNetns } from '../sys/netns.ts';
import { trySysctl } from '../sys/sysctl.ts';

/** Container runtimes keep namespaces here too, but the lab has its own copy of the directory. */
const NETNS_DIR = '/run/netns';

/** A part of the private ranges (RFC 1918, RFC 4193) that tried networks rarely use. */
const HOST = { 4: '172.31.254.1/24', 6: 'fd00:ca7e::1/64' } as const;
const OUTSIDE = { 4: '172.31.254.2/24', 6: 'fd00:ca7e::2/64' } as const;
const ANYWHERE = { 4: '0.0.0.0/0', 6: '::/0' } as const;

/** A namespace with the sockets needed to inspect it. */
export interface Place {
  readonly name: string;
  readonly netns: Netns;
  readonly route: NetlinkSocket;
  readonly netfilter: NetlinkSocket;
}

/** The fake host and its environment. */
export interface Lab {
  readonly host: Place;
  readonly outside: Place;
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
  ensureDirSync(NETNS_DIR);
  const host = openPlace('host', openOwnNetns());
  const outside = createPlace('outside');
  const families = existsSync('/proc/sys/net/ipv6') ? ([4, 6] as const) : ([4] as const);
  // Uses up an index there. If both ends had the same one, the kernel would report their connection only a second later
  // (linkwatch_urgent_event in net/core/link_watch.c), and IPv6 waits for that.
  createLink(outside.route, { name: 'unused', kind: 'bridge' });
  createLink(host.route, {
    name: 'outside0',
    kind: 'veth',
    peer: { name: 'eth0', netnsFd: outside.netns.fd },
  });
  connect(host, 'outside0', HOST, OUTSIDE, families);
  connect(outside, 'eth0', OUTSIDE, HOST, families);
  for (const name of devices) plug(host, outside, name);
  // New namespaces inherit some of these from the machine; a plugin that needs forwarding has to enable it.
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '0');
  trySysctl('net/ipv6/conf/all/forwarding', '0');
  return { host, outside, hostAddress: ipsOf(HOST), outsideAddress: ipsOf(OUTSIDE), families };
}

/** Creates a namespace as a runtime does for a container, with only a loopback device that is down. */
export function createContainer(name: string): Place {
  return createPlace(name);
}

function createPlace(name: string): Place {
  const path = `${NETNS_DIR}/${name}`;
  createNetnsAt(path);
  return openPlace(name, openNetns(path));
}

function openPlace(name: string, netns: Netns): Place {
  const route = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  const netfilter = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
  return { name, netns, route, netfilter };
}

function connect(
  place: Place,
  device: string,
  own: typeof HOST | typeof OUTSIDE,
  other: typeof HOST | typeof OUTSIDE,
  families: readonly (4 | 6)[],
): void {
  const { route: socket, netns } = place;
  setLink(socket, getLink(socket, 'lo').index, { up: true });
  const { index } = getLink(socket, device);
  // During duplicate address detection of its link-local address, a router cannot find its neighbours.
  inNetns(netns, () => trySysctl(`net/ipv6/conf/${device}/accept_dad`, '0'));
  for (const family of families) addAddress(socket, index, parseCidr(own[family]), { nodad: true });
  setLink(socket, index, { up: true });
  for (const family of families) {
    const gateway = parseCidr(other[family]).ip;
    addRoute(socket, { dst: parseCidr(ANYWHERE[family]), gateway, oif: index });
  }
}

function plug(host: Place, outside: Place, name: string): void {
  createLink(host.route, { name, kind: 'veth', peer: { name, netnsFd: outside.netns.fd } });
  for (const { route } of [host, outside]) setLink(route, getLink(route, name).index, { up: true });
}

function ipsOf(cidrs: Readonly<Record<4 | 6, string>>): Record<4 | 6, Ip> {
  const ipOf = (text: string) => parseIp(text.replace(/\/.*/, ''));
  return { 4: ipOf(cidrs[4]), 6: ipOf(cidrs[6]) };
}

/** Directories replaced by empty in-memory file systems: plugins keep leases, locks, caches and sockets there. */
export const FRESH_DIRS = ['/run', '/var/lib', '/tmp'] as const;

/** File systems that are really the kernel: sysctls are per namespace, and plugins write them. */
const KERNEL_DIRS = ['/proc', '/sys'];

/**
 * Makes the machine's files read-only and {@link FRESH_DIRS} empty, for this process and its children. The process must be in
 * a mount namespace of its own.
 * @param keep paths below the fresh directories that remain visible: executables, for example
 */
export function layGround(keep: readonly string[]): void {
  const fresh = FRESH_DIRS.filter(existsSync).map(dir => realpathSync(dir));
  const kept = keep.filter(existsSync).map(dir => realpathSync(dir));
  const covered = kept.filter(path => fresh.some(dir => path.startsWith(dir + sep)));
  // Opened before they are covered, since a descriptor still refers to the original directory.
  const open = [...new Set(covered)].map(path => [path, openSync(path, 'r')] as const);
  const cwd = workingDirectory() ?? '/';
  try {
    protectMachine();
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

function protectMachine(): void {
  makeReadOnly('/');
  for (const dir of KERNEL_DIRS.filter(existsSync)) makeWritable(dir);
}
