// Which leases are held by no attachment any longer?
import { join } from 'node:path';
import { findOwner } from '../cni/attachment.ts';
import { cniCacheDir } from '../cni/directories.ts';
import { isObject, memberOf, tryParse } from '../cni/json.ts';
import { tryRead } from '../files/read-file.ts';
import { listLinks } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { bootOf } from './boot-note.ts';
import { findHolders, findUse, type Use } from './holders.ts';
import { inspectLease } from './inspect.ts';
import type { LeaseStore } from './lease-store.ts';
import type { Owner } from './owner.ts';

/**
 * The reference reserves an address before it configures it, and leaves no note of its ADD. A lease without a note that was
 * written less than this many milliseconds before GC began may be of an ADD in progress, which no list of valid attachments can
 * name; the next GC collects it if it is not. An ADD takes well below a second from the lease to the address, or two with
 * duplicate address detection.
 */
const UNNOTED_ADD_MS = 10_000;

/** What GC keeps, as a plugin's call has it. */
interface Kept {
  /** When GC began, in milliseconds of the clock of the kernel's file times. */
  readonly since: number;
  has(owner: Required<Owner>): boolean;
  /** Whether it was noted when its ADD began. */
  isNoted(owner: Required<Owner>): boolean;
  some(test: (owner: Required<Owner>) => boolean): boolean;
}

/**
 * Addresses whose owner GC does not keep, and torn files that a crash left without an owner. Files with other content are left
 * alone. Leases without an interface count for every interface of their container. For leases of the reference, which does not
 * note when an ADD began, the date of the lease is used instead, with {@link UNNOTED_ADD_MS}.
 * @param addresses listed while no other process changes the leases
 */
export function findGarbage(
  store: Pick<LeaseStore, 'findOwner' | 'isTorn' | 'findTime'>,
  addresses: readonly string[],
  kept: Kept,
): string[] {
  const isKept = ({ containerId, ifname }: Owner): boolean =>
    ifname === undefined
      ? kept.some(one => one.containerId === containerId)
      : kept.has({ containerId, ifname });
  const isNoted = ({ containerId, ifname }: Owner): boolean =>
    ifname !== undefined && kept.isNoted({ containerId, ifname });
  const isNew = (address: string, owner: Owner): boolean => {
    const age = kept.since - (store.findTime(address) ?? 0);
    return isNoted(owner) ? age <= 0 : age <= UNNOTED_ADD_MS;
  };
  return addresses.filter(address => {
    const owner = store.findOwner(address);
    if (owner === undefined) return store.isTorn(address);
    return !isKept(owner) && !isNew(address, owner);
  });
}

/**
 * Splits addresses into those that an interface in another namespace still has, and the rest. GC of a main plugin of ours has
 * already deleted the interface; one that another plugin made may still exist, and its address must not be reused.
 */
export function splitByUse(addresses: readonly string[]): {
  readonly used: string[];
  readonly free: string[];
} {
  const holders = addresses.length ? findHolders() : undefined;
  const isUsed = (address: string) => holders?.get(address)?.some(({ isHere }) => !isHere) ?? false;
  return {
    used: addresses.filter(isUsed),
    free: addresses.filter(address => !isUsed(address)),
  };
}

/**
 * Those of the addresses whose container was never deleted and is gone: its lease is of this boot and older than an ADD may take,
 * no interface in any namespace has the address, no pair leads to the container, and libcni's record, if there is one, names a
 * namespace that does not exist. Without the right to inspect namespaces, none.
 * @param dir the network's leases, which no other process changes during the call
 */
export function findDeadLeases(dir: string, network: string, addresses: readonly string[]): string[] {
  const suspects = addresses.filter(address => bootOf(join(dir, address)) === 'this');
  const use = suspects.length ? findUse() : undefined;
  if (use === undefined) return [];
  const living = containersWithPairs(network, use);
  const witnesses = {
    holders: use.holders,
    findRecord: (owner: Owner) => findRecord(network, owner),
  };
  return suspects.filter(address => {
    const lease = inspectLease(dir, address, witnesses);
    return lease?.state === 'unused' && lease.owner !== undefined && !living.has(lease.owner.containerId);
  });
}

/** Containers to which a pair leads: one may have given its address to a virtual machine. */
function containersWithPairs(network: string, { farEnds }: Use): ReadonlySet<string> {
  const socket = new NetlinkSocket(NETLINK_ROUTE);
  try {
    const owners = listLinks(socket).flatMap(({ index, attrs: { alias } }) =>
      farEnds.has(index) ? (findOwner(alias) ?? []) : [],
    );
    return new Set(owners.filter(one => one.network === network).map(({ containerId }) => containerId));
  } finally {
    socket.close();
  }
}

/** The namespace in libcni's cached result. */
function findRecord(network: string, { containerId, ifname }: Owner): { netns: string } | undefined {
  const text = tryRead(join(cniCacheDir(), 'results', `${network}-${containerId}-${ifname}`));
  const record = text === undefined ? undefined : tryParse(text);
  if (!isObject(record)) return undefined;
  const result = memberOf(record, 'result');
  const interfaces = isObject(result) ? memberOf(result, 'interfaces') : undefined;
  const own = Array.isArray(interfaces)
    ? interfaces.find(one => isObject(one) && memberOf(one, 'name') === ifname)
    : undefined;
  const netns = memberOf(record, 'netns') ?? (isObject(own) ? memberOf(own, 'sandbox') : undefined);
  return typeof netns === 'string' ? { netns } : undefined;
}
