// Which blocks of a pool does its map show, however large the pool is?
import { findCidr, findIp, type Ip, lastOf, networkOf, renderIp } from '../../net/ip.ts';
import type { ShownLease } from '../shown.ts';

/** Addresses in one block of the map. */
export const BLOCK = 256;

/** First and last address of a range. */
interface Bounds {
  readonly start: Ip;
  readonly end: Ip;
}

/** One address; it may lie in the block but not in the range. */
export interface MapCell {
  readonly address: string;
  readonly isInside: boolean;
  readonly lease?: ShownLease;
}

/**
 * The ends of a range as a pool names it: `10.1.0.0/24`, or with its ends, `10.1.0.0/24 10.1.0.5-10.1.0.9`. A list of several parts
 * counts as the whole subnet. Undefined if it is none of these.
 */
export function boundsOf(range: string): Bounds | undefined {
  const [text = '', part = '', ...more] = range.split(' ');
  const subnet = findCidr(text);
  if (subnet === undefined) return undefined;
  const [from = '', to = ''] = more.length === 0 && part.includes('-') ? part.split('-') : [];
  return { start: findIp(from) ?? networkOf(subnet), end: findIp(to) ?? lastOf(subnet) };
}

/** The blocks with leases, and the first one, in the order of addresses. A small range is one block without what is beyond it. */
export function blocksOf({ start, end }: Bounds, leases: readonly ShownLease[]) {
  const taken = new Map<bigint, ShownLease>();
  for (const lease of leases) {
    const ip = findIp(lease.address);
    if (ip?.family === start.family && ip.value >= start.value && ip.value <= end.value)
      taken.set(ip.value, lease);
  }
  const size = BigInt(BLOCK);
  const beginOf = (value: bigint) => value - (value % size);
  const isSmall = end.value - start.value < size;
  const begins = new Set(isSmall ? [start.value] : [start.value, ...taken.keys()].map(beginOf));
  const length = isSmall ? Number(end.value - start.value) + 1 : BLOCK;
  const sorted = [...begins].toSorted((a, b) => (a < b ? -1 : 1));
  return sorted.map(begin => {
    const cells = Array.from({ length }, (_, i): MapCell => {
      const value = begin + BigInt(i);
      const lease = taken.get(value);
      const isInside = value >= start.value && value <= end.value;
      const address = renderIp({ family: start.family, value });
      return { address, isInside, ...(lease === undefined ? {} : { lease }) };
    });
    return { first: cells[0]?.address ?? '', last: cells.at(-1)?.address ?? '', cells };
  });
}

/** A number of addresses; the large ones as a power of two, which is how large ranges are made. */
export function renderSize(size: number): string {
  return size > Number.MAX_SAFE_INTEGER ? `2^${Math.round(Math.log2(size))}` : size.toLocaleString('en');
}
