// In which network namespaces of this machine is an address, or the other end of a device, in use?
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { namesIn } from '../files/names-in.ts';
import { renderIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { type Link, listLinks } from '../netlink/rtnl/link.ts';
import { netnsIdOf } from '../netlink/rtnl/netns-id.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, findNetns, inNetns, openOwnNetns, sameNetns } from '../sys/netns.ts';

/** An interface that has an address. */
export interface Holder {
  readonly ifname: string;
  /** A path that leads to its namespace. */
  readonly netns: string;
  /** One of the processes in the namespace: `nginx (4711)`; undefined when there is none. */
  readonly process: string | undefined;
  /** How many there are. */
  readonly processes: number;
  /** It is the namespace of this process. */
  readonly isHere: boolean;
}

/** Where runtimes and people keep namespaces that no process is in. */
const NAME_DIRS = ['/run/netns', '/run/docker/netns', '/var/run/netns'];

/** What is in use on this machine, as its network namespaces tell. */
export interface Use {
  /** Who has which address, by its text. */
  readonly holders: ReadonlyMap<string, readonly Holder[]>;
  /** Devices of this namespace whose other end is in another one: the path of that, by their index. */
  readonly farEnds: ReadonlyMap<number, string>;
}

/**
 * Looks into every network namespace that a process is in or a name leads to. Addresses of interfaces whose other end is in
 * a namespace that is not this process's are left out: a node that runs inside this machine has containers of its own.
 * Networks that know nothing of each other may still use one address.
 * @returns undefined when this process may not look into namespaces
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
    const process = first === undefined ? undefined : `${nameOf(first)} (${first})`;
    const isElsewhere = ({ attrs: { linkNetnsId } }: Link) =>
      hostId !== undefined && linkNetnsId !== undefined && linkNetnsId !== hostId;
    for (const { cidr, index } of listAddresses(socket)) {
      const link = links.get(index);
      if (!link || isElsewhere(link)) continue;
      const address = renderIp(cidr.ip);
      const known = holders.get(address) ?? [];
      holders.set(address, known);
      const isHere = hostId === undefined;
      known.push({ ifname: link.name, netns: path, process, processes: pids.length, isHere });
    }
  });
  return looked ? { holders, farEnds } : undefined;
}

/** Who has which address, by its text; undefined when this process may not look. */
export function findHolders(): Use['holders'] | undefined {
  return findUse()?.holders;
}

/** A namespace that is looked into. */
interface Visit {
  readonly path: string;
  readonly pids: readonly number[];
  readonly socket: NetlinkSocket;
  /** What it calls the namespace of this process; undefined when it is that. */
  readonly hostId: number | undefined;
}

/** @returns whether any namespace could be looked into */
function visitNamespaces(visit: (one: Visit) => void): boolean {
  const host = openOwnNetns();
  let looked = false;
  for (const [path, pids] of listNamespaces()) {
    const netns = findNetns(path);
    if (netns === undefined) continue;
    try {
      const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
      try {
        const hostId = sameNetns(netns, host) ? undefined : netnsIdOf(socket, host.fd);
        visit({ path, pids, socket, hostId });
        looked = true;
      } finally {
        socket.close();
      }
    } catch {
      // Not ours to enter.
    } finally {
      closeNetns(netns);
    }
  }
  closeNetns(host);
  return looked;
}

/** A path for each namespace, with the processes in it. A name says more than a process, so names come first. */
function listNamespaces(): Map<string, number[]> {
  const byInode = new Map<number, { path: string; pids: number[] }>();
  const meet = (path: string, pid?: number) => {
    const ino = inodeOf(path);
    if (ino === undefined) return;
    const known = byInode.get(ino) ?? { path, pids: [] };
    byInode.set(ino, known);
    if (pid !== undefined) known.pids.push(pid);
  };
  for (const dir of NAME_DIRS) for (const name of namesIn(dir)) meet(join(dir, name));
  for (const name of namesIn('/proc')) if (/^\d+$/.test(name)) meet(`/proc/${name}/ns/net`, Number(name));
  return new Map(Array.from(byInode.values(), ({ path, pids }) => [path, pids]));
}

function inodeOf(path: string): number | undefined {
  try {
    return statSync(path).ino;
  } catch {
    return undefined;
  }
}

function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return 'ended';
  }
}
