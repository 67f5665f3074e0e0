// Which network namespaces of this machine use an address, hold the other end of a device, or are a container's by libcni's records?
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { cniCacheDir } from '../cni/directories.ts';
import { isObject, type JsonObject, memberOf, objectsIn, tryParse } from '../cni/json.ts';
import { namesIfThere, readIfThere, tryRead, UNREADABLE } from '../files/read-file.ts';
import { renderIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { type Link, listLinks, lowerOf, netnsIdOf } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkError, NetlinkSocket } from '../netlink/socket.ts';
import { isShortage } from '../sys/errno.ts';
import { closeNetns, findNetns, inNetns, type Netns, ownNetns, sameNetns } from '../sys/netns.ts';

export interface Holder {
  readonly ifname: string;
  /** A path to its namespace. */
  readonly netns: string;
  /** One of the processes in the namespace: `nginx (4711)`; undefined when there is none. */
  readonly process: string | undefined;
  readonly processes: number;
  /** True for the namespace of this process. */
  readonly isHere: boolean;
}

/** Where runtimes and people keep namespaces that contain no process. */
const NAME_DIRS = ['/run/netns', '/run/docker/netns', '/var/run/netns'];

export interface Use {
  /** The interfaces that have an address, by its text. */
  readonly holders: ReadonlyMap<string, readonly Holder[]>;
  /** Devices of this namespace whose other end is in another one: the path of that namespace, by device index. */
  readonly farEnds: ReadonlyMap<number, string>;
}

/**
 * Inspects every network namespace that a process is in or a name refers to. Ignores the addresses of interfaces whose other
 * end is in a namespace other than this process's: a node that runs inside this machine has containers of its own. Even so,
 * unrelated networks may use the same address.
 * @returns undefined when this process may not inspect namespaces
 * @throws as {@link visitNamespaces}: the addresses of one that cannot be inspected are in use
 */
export function findUse(): Use | undefined {
  const holders = new Map<string, Holder[]>();
  const farEnds = new Map<number, string>();
  const looked = visitNamespaces(visit => {
    const { path, pids, socket, hostId } = visit;
    const links = new Map(listLinks(socket).map(link => [link.index, link]));
    for (const { peer, attrs } of links.values()) {
      if (hostId !== undefined && attrs.linkNetnsId === hostId && peer > 0) farEnds.set(peer, path);
    }
    const [first] = pids;
    const process =
      first === undefined ? undefined : `${tryRead(`/proc/${first}/comm`)?.trim() ?? 'ended'} (${first})`;
    const isElsewhere = ({ attrs: { linkNetnsId } }: Link) =>
      hostId !== undefined && linkNetnsId !== undefined && linkNetnsId !== hostId;
    for (const { cidr, index } of listAddresses(socket)) {
      const link = links.get(index);
      if (!link || isElsewhere(link)) continue;
      const address = renderIp(cidr.ip);
      const known = holders.get(address) ?? [];
      holders.set(address, known);
      // One that changes may be listed more than once.
      if (known.some(one => one.ifname === link.name && one.netns === path)) continue;
      const isHere = hostId === undefined;
      known.push({ ifname: link.name, netns: path, process, processes: pids.length, isHere });
    }
  });
  return looked ? { holders, farEnds } : undefined;
}

/**
 * Why a device must stay: another one of the host or of a container is on it, such as a VLAN device or a macvlan, which the kernel would
 * delete as well; or that cannot be seen.
 * @param links of the host that count
 */
export function findUpper(index: number, links: readonly Link[]): string | undefined {
  const upper = links.find(link => lowerOf(link) === index);
  if (upper) return `"${upper.name}" is on it`;
  const use = findUse();
  if (use === undefined) return 'a device in a namespace that is not accessible from here may be on it';
  const path = use.farEnds.get(index);
  return path && `a device in ${path} is on it`;
}

export interface NamespaceVisit {
  readonly path: string;
  readonly pids: readonly number[];
  readonly socket: NetlinkSocket;
  /** The id by which it knows this process's namespace; undefined when it is that namespace. */
  readonly hostId: number | undefined;
}

/**
 * Calls the function with each network namespace that a process is in or a name refers to. What it throws ends that visit only.
 * @returns whether any namespace could be inspected
 * @throws SystemError, NetlinkError or CniError 5, after all others were visited, when one could not be for want of descriptors or memory,
 *   or the kernel refused a question
 */
export function visitNamespaces(visit: (one: NamespaceVisit) => void): boolean {
  const host = ownNetns();
  let looked = false;
  const failures: unknown[] = [];
  for (const [path, pids] of listNamespaces()) {
    try {
      askInside(path, (socket, netns) => {
        const hostId = sameNetns(netns, host) ? undefined : netnsIdOf(socket, host.fd);
        visit({ path, pids, socket, hostId });
        looked = true;
      });
    } catch (error) {
      // Otherwise we have no permission to enter it; who has entered it may ask.
      if (isShortage(error) || error instanceof NetlinkError) failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
  return looked;
}

/** Asks the kernel about a namespace. @returns undefined when it does not exist any longer, or may not be opened */
export function askInside<T>(path: string, work: (socket: NetlinkSocket, netns: Netns) => T): T | undefined {
  const netns = findNetns(path);
  if (netns === undefined) return undefined;
  try {
    const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE, { isOfOthers: true }));
    try {
      return work(socket, netns);
    } finally {
      socket.close();
    }
  } finally {
    closeNetns(netns);
  }
}

/** A path for each namespace, with the processes in it. Names come first, because they say more than a process does. */
function listNamespaces(): Map<string, number[]> {
  const byInode = new Map<number, { path: string; pids: number[] }>();
  const meet = (path: string, pid?: number) => {
    try {
      const { ino } = statSync(path);
      const known = byInode.get(ino) ?? { path, pids: [] };
      byInode.set(ino, known);
      if (pid !== undefined) known.pids.push(pid);
    } catch {
      // It has ended since it was listed.
    }
  };
  const namesOf = (dir: string) => namesIfThere(dir, 'network namespaces', UNREADABLE);
  for (const dir of NAME_DIRS) for (const name of namesOf(dir)) meet(join(dir, name));
  for (const name of namesOf('/proc')) if (/^\d+$/.test(name)) meet(`/proc/${name}/ns/net`, Number(name));
  return new Map(Array.from(byInode.values(), ({ path, pids }) => [path, pids]));
}

/**
 * The namespace that exists, of those that records of the container name, on whichever network: its address may be where nothing shows
 * it, in a virtual machine, or on a device that a program drives itself. Multus and others keep their records in a directory of their own.
 */
export function findOnRecord(
  { containerId, ifname }: { readonly containerId: string; readonly ifname?: string | undefined },
  root = cniCacheDir(),
): string | undefined {
  const paths = recordsOf(name => name.includes(`-${containerId}-`), root).flatMap(
    record => netnsIn(record, ifname) ?? [],
  );
  return paths.find(isNetns);
}

/** Records of libcni by the names of their files, of whichever program. */
export function recordsOf(isMeant: (name: string) => boolean, root = cniCacheDir()): JsonObject[] {
  const dirs = ['', ...recordsIn(root)].map(name => join(root, name, 'results'));
  return dirs.flatMap(dir =>
    recordsIn(dir)
      .filter(isMeant)
      .map(name => readRecord(join(dir, name))),
  );
}

/** Whether a path leads to a network namespace. */
export function isNetns(path: string): boolean {
  const netns = findNetns(path);
  if (netns) closeNetns(netns);
  return netns !== undefined;
}

function recordsIn(dir: string): string[] {
  return namesIfThere(dir, RECORD, UNREADABLE);
}

const RECORD = 'cached results';

/**
 * A record of libcni; empty if it is none.
 * @throws CniError 5 when it cannot be read for want of descriptors or memory
 */
function readRecord(file: string): JsonObject {
  const record = tryParse(readIfThere(file, RECORD, UNREADABLE) ?? '');
  return isObject(record) ? record : {};
}

export function netnsIn(record: JsonObject, ifname: string | undefined): string | undefined {
  const interfaces = objectsIn(memberOf(record, 'result'), 'interfaces');
  const own = interfaces.find(one => memberOf(one, 'name') === ifname);
  const netns = memberOf(record, 'netns') ?? (own && memberOf(own, 'sandbox'));
  return typeof netns === 'string' ? netns : undefined;
}
