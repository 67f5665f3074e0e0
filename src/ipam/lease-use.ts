// Is a lease still in use, and what is the evidence?

import { statSync } from 'node:fs';
import { join } from 'node:path';
import { type AttachmentId, findOwner, isSameContainer } from '../cni/attachment.ts';
import { type JsonObject, memberOf, objectsIn } from '../cni/json.ts';
import { findCidr, type Ip, parseIp, renderIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { listLinks } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { findNetnsIdentity } from '../sys/netns-identity.ts';
import {
  askInside,
  findOnRecord,
  findUse,
  type Holder,
  isNetns,
  netnsIn,
  recordsOf,
  type Use,
} from './holders.ts';
import { type BootOfLease, bootOf, type Owner, parseOwner, readLease } from './lease-files.ts';

/**
 * `live`: something that exists uses it. `new`: written recently, so an ADD may be in progress. `unused`: its owner no longer
 * exists. `unknown`: the evidence does not tell.
 */
type LeaseState = 'live' | 'new' | 'unused' | 'unknown';

export interface InspectedLease {
  readonly address: string;
  readonly owner: Owner | undefined;
  readonly state: LeaseState;
  /** The evidence, human-readable, in order of weight. */
  readonly evidence: readonly string[];
  readonly writtenAt: Date;
}

/** Sources of evidence besides the lease itself. */
export interface Witnesses {
  /** The namespace of a recorded ADD; undefined without a record. Leases of older versions may not name an interface. */
  findRecord(owner: Owner): { readonly netns: string } | undefined;
  /** Addresses in use on this machine; undefined when this process may not inspect namespaces. */
  readonly holders: ReadonlyMap<string, readonly Holder[]> | undefined;
}

/** An ADD takes at most a second from its lease to the address on the interface; on a slow machine, ten. */
const NEW_MS = 60_000;

/** Inspects one lease; undefined when it does not exist. Needs no lock. */
export function inspectLease(dir: string, address: string, witnesses: Witnesses): InspectedLease | undefined {
  const path = join(dir, address);
  const text = readLease(dir, address);
  // It may be released in this moment.
  const writtenAt = statSync(path, { throwIfNoEntry: false })?.mtime;
  if (text === undefined || writtenAt === undefined) return undefined;
  const owner = parseOwner(text);
  const boot = bootOf(path);
  const record = owner && witnesses.findRecord(owner);
  const namespaceExists = record !== undefined && isNetns(record.netns);
  const holders = witnesses.holders?.get(address) ?? [];
  const words = [
    ...describeHolders(holders, witnesses.holders !== undefined),
    record
      ? `an ADD is recorded for namespace "${record.netns}", which ${namespaceExists ? 'exists' : 'no longer exists'}`
      : 'no ADD is recorded',
    BOOT_WORDS[boot],
    `"${path}" was written ${writtenAt.toISOString()}`,
  ];
  const isForeign = owner === undefined && text.trim() !== '';
  const isNew = Math.abs(Date.now() - writtenAt.getTime()) < NEW_MS;
  return { address, owner, state: judge(), evidence: words, writtenAt };

  function judge(): LeaseState {
    if (holders.length || namespaceExists) return 'live';
    if (boot === 'earlier') return 'unused';
    if (isForeign) return 'unknown';
    if (isNew) return 'new';
    return witnesses.holders === undefined ? 'unknown' : 'unused';
  }
}

const BOOT_WORDS: Readonly<Record<BootOfLease, string>> = {
  this: 'the lease was used in this boot',
  earlier: 'the lease is from an earlier boot, and containers do not survive a reboot',
  unknown: 'the lease does not record a boot of this machine',
};

function describeHolders(holders: readonly Holder[], looked: boolean): string[] {
  if (!looked) return ['cannot see whether an interface has the address: this requires root'];
  if (holders.length === 0) return ['no interface in any namespace of this machine has the address'];
  return holders.map(({ ifname, netns, process, processes }) => {
    const more = processes > 1 ? ` and ${processes - 1} more` : '';
    const who = process === undefined ? 'no process' : `process ${process}${more}`;
    return `interface "${ifname}" has the address, in namespace "${netns}" with ${who}`;
  });
}

/**
 * Those of the addresses whose container was never deleted and is gone: its lease is of this boot and older than an ADD may take,
 * no interface in any namespace has the address, no pair leads to the container, and no record of libcni names a namespace of it
 * that exists. Without the right to inspect namespaces, none.
 * @throws SystemError, NetlinkError or CniError 5 when that cannot be looked at, as for want of descriptors
 * @param dir the network's leases, which no other process changes during the call
 * @param asking the namespace of the ADD that asks: the pair to it, which that ADD has made, says nothing of an earlier one
 */
export function findDeadLeases(
  dir: string,
  network: string,
  addresses: readonly string[],
  asking?: string,
): string[] {
  const suspects = addresses.filter(address => bootOf(join(dir, address)) === 'this');
  const use = suspects.length ? findUse() : undefined;
  if (use === undefined) return [];
  const excepted = asking === undefined ? undefined : findNetnsIdentity(asking);
  const isOther = (path: string) => excepted === undefined || findNetnsIdentity(path) !== excepted;
  // One may have given its address to a virtual machine.
  const living = pairsOf(network, use).filter(({ path }) => isOther(path));
  const witnesses = { holders: use.holders, findRecord: () => undefined };
  return suspects.filter(address => {
    const lease = inspectLease(dir, address, witnesses);
    if (lease?.state !== 'unused' || lease.owner === undefined) return false;
    const { containerId } = lease.owner;
    return (
      !living.some(({ owner }) => isSameContainer(containerId, owner.containerId)) &&
      findOnRecord(lease.owner) === undefined
    );
  });
}

/** Attachments to which a pair leads, by the alias of the host's end, and the paths of their namespaces. */
function pairsOf(
  network: string,
  { farEnds }: Use,
): { readonly owner: AttachmentId; readonly path: string }[] {
  const socket = new NetlinkSocket(NETLINK_ROUTE);
  try {
    return listLinks(socket).flatMap(({ index, attrs: { alias } }) => {
      const [path, owner] = [farEnds.get(index), findOwner(alias)];
      return path !== undefined && owner?.network === network ? [{ owner, path }] : [];
    });
  } finally {
    socket.close();
  }
}

interface LostLease {
  readonly ip: Ip;
  readonly owner: Required<Owner>;
}

/**
 * Leases of the network that containers need and that are gone, as when files were deleted to make room: libcni has a record of the ADD, and
 * the namespace that it names has an interface with the address; or, as records are deleted as well, a pair leads to such an interface.
 */
export function findLostLeases(network: string): LostLease[] {
  const recorded = recordsOf(name => name.startsWith(`${network}-`)).flatMap(one => lostIn(one, network));
  return [...recorded, ...lostBehindPairs(network)];
}

function lostBehindPairs(network: string): LostLease[] {
  const use = findUse();
  if (use === undefined) return [];
  const holders = [...use.holders].filter(([address]) => !address.startsWith('fe80:'));
  // A digest in place of an id is no owner.
  const pairs = pairsOf(network, use).filter(({ owner }) => !owner.containerId.startsWith('~'));
  return pairs.flatMap(({ owner: { containerId, ifname }, path }) => {
    const own = holders.filter(([, all]) => all.some(one => one.netns === path && one.ifname === ifname));
    return own.map(([address]) => ({ ip: parseIp(address), owner: { containerId, ifname } }));
  });
}

function lostIn(record: JsonObject, network: string): LostLease[] {
  if (memberOf(record, 'networkName') !== network) return [];
  const [containerId, ifname] = ['containerId', 'ifName'].map(key => memberOf(record, key));
  if (typeof containerId !== 'string' || typeof ifname !== 'string') return [];
  const held = addressesIn(netnsIn(record, ifname) ?? '');
  return objectsIn(memberOf(record, 'result'), 'ips')
    .flatMap(one => findCidr(String(memberOf(one, 'address')))?.ip ?? [])
    .filter(ip => held.has(renderIp(ip)))
    .map(ip => ({ ip, owner: { containerId, ifname } }));
}

function addressesIn(path: string): ReadonlySet<string> {
  const found = askInside(path, socket => listAddresses(socket).map(({ cidr }) => renderIp(cidr.ip)));
  return new Set(found);
}
