// In which network namespaces of this machine is an address in use?
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { renderIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { listLinks } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, findNetns, inNetns } from '../sys/netns.ts';

/** An interface that has an address. */
export interface Holder {
  readonly ifname: string;
  /** A path that leads to its namespace. */
  readonly netns: string;
  /** One of the processes in the namespace: `nginx (4711)`; undefined when there is none. */
  readonly process: string | undefined;
  /** How many there are. */
  readonly processes: number;
}

/** Where runtimes and people keep namespaces that no process is in. */
const NAME_DIRS = ['/run/netns', '/run/docker/netns', '/var/run/netns'];

/**
 * Who has which address, by its text, in every network namespace that a process is in or a name leads to. Networks that
 * know nothing of each other may use one address.
 * @returns undefined when this process may not look into namespaces
 */
export function findHolders(): ReadonlyMap<string, readonly Holder[]> | undefined {
  const holders = new Map<string, Holder[]>();
  let looked = false;
  for (const [path, pids] of listNamespaces()) {
    const found = readAddresses(path);
    if (found === undefined) continue;
    looked = true;
    const [first] = pids;
    const process = first === undefined ? undefined : `${nameOf(first)} (${first})`;
    for (const { address, ifname } of found) {
      const known = holders.get(address) ?? [];
      holders.set(address, known);
      known.push({ ifname, netns: path, process, processes: pids.length });
    }
  }
  return looked ? holders : undefined;
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

function readAddresses(path: string): { address: string; ifname: string }[] | undefined {
  const netns = findNetns(path);
  if (netns === undefined) return undefined;
  try {
    const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
    try {
      const names = new Map(listLinks(socket).map(({ index, name }) => [index, name]));
      return listAddresses(socket).map(({ cidr, index }) => ({
        address: renderIp(cidr.ip),
        ifname: names.get(index) ?? '?',
      }));
    } finally {
      socket.close();
    }
  } catch {
    // Not ours to enter.
    return undefined;
  } finally {
    closeNetns(netns);
  }
}

function inodeOf(path: string): number | undefined {
  try {
    return statSync(path).ino;
  } catch {
    return undefined;
  }
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return 'ended';
  }
}
