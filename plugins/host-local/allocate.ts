// Which free address does an attachment get from each range set?
import { CniError } from '../../src/cni/errors.ts';
import { type Owner, renderAttachment } from '../../src/ipam/lease-files.ts';
import { inSearchOrder, type Stretch } from '../../src/ipam/stretch.ts';
import { type Ip, offsetIp, renderIp } from '../../src/net/ip.ts';
import { findRange, isGateway, type Range, type RangeSet, renderRangeSet } from './range.ts';

/** Codes of our own (100 and up are free for plugins); listed in the README. */
export const HostLocalCode = {
  /** The attachment already holds an address of a range set. */
  alreadyAllocated: 100,
  /** A requested address belongs to another attachment or is a gateway. */
  addressTaken: 101,
  /** A requested address is in no range, or is a second one in the same set. */
  notInRanges: 102,
} as const;

/** A range set has no free address. */
export class SetExhausted extends Error {
  readonly set: RangeSet;
  readonly setIndex: number;

  constructor(set: RangeSet, setIndex: number) {
    super(`Cannot allocate from range set ${setIndex}: nothing is free`);
    this.set = set;
    this.setIndex = setIndex;
  }
}

/** The request to the pool. */
export interface Wanted {
  /** One address comes from each. */
  readonly sets: readonly RangeSet[];
  /** Requested addresses, in the order of their sources, without duplicates. */
  readonly requested: readonly Ip[];
}

/** A chosen address and where it comes from. */
export interface Allocation {
  readonly ip: Ip;
  readonly range: Range;
  readonly setIndex: number;
}

/** What is known about the addresses of a network when one is chosen. */
export interface Leases {
  isTaken(ip: Ip): boolean;
  /** Whom an address is leased to; undefined if its file does not tell. */
  findOwner(address: string): Owner | undefined;
  /** The first free address from `from` to `to`, both included. */
  findFree(from: Ip, to: Ip): Ip | undefined;
  /** The address last handed out from the set. */
  findLastReserved(setIndex: number): Ip | undefined;
}

/**
 * Chooses one address from every set: the first requested one in it, otherwise the next free one after the last one handed out.
 * @throws SetExhausted, or CniError 101 and 102 for requested addresses
 */
export function allocate(plan: Wanted, leases: Leases): Allocation[] {
  const open = [...plan.requested];
  const allocations = plan.sets.map((set, setIndex) => {
    const at = open.findIndex(ip => findRange(set, ip));
    const [requested] = at < 0 ? [] : open.splice(at, 1);
    const ip = requested ? claim(set, setIndex, requested, leases) : nextFree(set, setIndex, leases);
    return { ip, range: findRange(set, ip) ?? set[0], setIndex };
  });
  if (open.length) {
    throw new CniError(
      HostLocalCode.notInRanges,
      `Cannot allocate requested addresses ${open.map(renderIp).join(', ')}: each must lie in a range set of its own, ` +
        `and the sets are ${plan.sets.map(set => `[${renderRangeSet(set)}]`).join(' ')}`,
    );
  }
  return allocations;
}

/** The set in search order: from the address after `last`, or from the very first one. */
export function stretchesOf(set: RangeSet, last: Ip | undefined): readonly Stretch[] {
  return inSearchOrder(
    set.map(({ start, end }): Stretch => [start, end]),
    last,
  );
}

function claim(set: RangeSet, setIndex: number, ip: Ip, leases: Leases): Ip {
  const address = renderIp(ip);
  const owner = leases.findOwner(address);
  const holder = owner ? ` by ${renderAttachment(owner)}` : '';
  const problem = isGateway(set, ip)
    ? 'it is the gateway'
    : leases.isTaken(ip)
      ? `it is in use${holder}`
      : undefined;
  if (problem === undefined) return ip;
  throw new CniError(
    HostLocalCode.addressTaken,
    // The words after the first colon are the reference's, which people and tests of podman look for.
    `Cannot allocate from range set ${setIndex}: requested IP address ${address} is not available: ${problem}`,
  );
}

function nextFree(set: RangeSet, setIndex: number, leases: Leases): Ip {
  for (const [from, to] of stretchesOf(set, leases.findLastReserved(setIndex))) {
    let free = leases.findFree(from, to);
    while (free && isGateway(set, free)) free = leases.findFree(offsetIp(free, 1n), to);
    if (free) return free;
  }
  throw new SetExhausted(set, setIndex);
}
