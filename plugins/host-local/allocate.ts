// Which free address does an attachment get from each range set?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { type Ip, offsetIp, renderIp } from '../../src/net/ip.ts';
import type { Plan } from './plan.ts';
import {
  capacityOf,
  findRange,
  isGateway,
  type Range,
  type RangeSet,
  renderRangeSet,
  sizeOf,
} from './range.ts';

/** Codes of our own (100 and up are free for plugins); listed in the README. */
export const HostLocalCode = {
  /** The attachment already holds an address of a range set. */
  alreadyAllocated: 100,
  /** An address asked for belongs to someone else or is a gateway. */
  addressTaken: 101,
  /** An address asked for lies in no range, or a second one in the same set. */
  notInRanges: 102,
} as const;

/** One address chosen, and where it comes from. */
export interface Allocation {
  readonly ip: Ip;
  readonly range: Range;
  readonly setIndex: number;
}

/** What is known about the addresses of a network at the moment of choosing. */
export interface Leases {
  isTaken(ip: Ip): boolean;
  /** The address last handed out from the set. */
  findLastReserved(setIndex: number): Ip | undefined;
}

/**
 * Chooses one address from every set: the first one asked for that lies in it, else the next free one after the last
 * one handed out.
 * @throws CniError 11 when a set has none left, 101 and 102 for addresses asked for
 */
export function allocate(plan: Pick<Plan, 'sets' | 'requested'>, leases: Leases): Allocation[] {
  const open = [...plan.requested];
  const allocations = plan.sets.map((set, setIndex) => {
    const at = open.findIndex(ip => findRange(set, ip));
    const [requested] = at < 0 ? [] : open.splice(at, 1);
    const ip = requested ? claim(set, requested, leases) : nextFree(set, setIndex, leases);
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

/**
 * Every address of the set in the order of trial: from the one after `last` (or the first of all) through all ranges
 * and around, so that `last` itself is tried last and released addresses rest as long as possible. No gateways.
 */
export function* candidatesOf(set: RangeSet, last: Ip | undefined): Generator<Ip, void, undefined> {
  const total = set.reduce((sum, range) => sum + sizeOf(range), 0n);
  let position = last === undefined ? 0n : positionOf(set, last) + 1n;
  for (let tried = 0n; tried < total; tried++, position++) {
    const ip = addressAt(set, position % total);
    if (!isGateway(set, ip)) yield ip;
  }
}

function claim(set: RangeSet, ip: Ip, leases: Leases): Ip {
  const problem = isGateway(set, ip) ? 'it is the gateway' : leases.isTaken(ip) ? 'it is in use' : undefined;
  if (problem === undefined) return ip;
  throw new CniError(
    HostLocalCode.addressTaken,
    `Cannot allocate requested address ${renderIp(ip)}: ${problem}`,
  );
}

function nextFree(set: RangeSet, setIndex: number, leases: Leases): Ip {
  for (const ip of candidatesOf(set, leases.findLastReserved(setIndex))) if (!leases.isTaken(ip)) return ip;
  const capacity = capacityOf(set);
  // The words after the colon are those of the reference: alerts on nodes look for them.
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot allocate from range set ${setIndex}: no IP addresses available in range set: ${renderRangeSet(set)} ` +
      `(${capacity} of ${capacity} addresses in use)`,
  );
}

/** Distance from the first address of the set; -1 for an address outside of it, so that the walk starts at the first. */
function positionOf(set: RangeSet, ip: Ip): bigint {
  let before = 0n;
  for (const range of set) {
    if (findRange([range], ip)) return before + (ip.value - range.start.value);
    before += sizeOf(range);
  }
  return -1n;
}

function addressAt(set: RangeSet, position: bigint): Ip {
  let rest = position;
  for (const range of set) {
    if (rest < sizeOf(range)) return offsetIp(range.start, rest);
    rest -= sizeOf(range);
  }
  return set[0].start;
}
