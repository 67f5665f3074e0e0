// Which leases of this boot belong to containers that no longer exist?
import { join } from 'node:path';
import { findOwner } from '../cni/attachment.ts';
import { cniCacheDir } from '../cni/directories.ts';
import { isObject, memberOf, tryParse } from '../cni/json.ts';
import { tryRead } from '../files/read-file.ts';
import { listLinks } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { bootOf } from './boot-note.ts';
import { findUse, type Use } from './holders.ts';
import { inspectLease } from './inspect.ts';
import type { Owner } from './owner.ts';

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
