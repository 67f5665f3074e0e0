// How full are the address ranges of a conflist, and who has an address? For tools.

import { attempt } from '../cni/errors.ts';
import {
  type AddressRange,
  type FindAbout,
  leasedRangesOf,
  type NetworkPlugins,
  rangesOf,
} from '../cni/plugin-about.ts';
import { type Ip, parseIp, renderIp } from '../net/ip.ts';
import { type Owner, parseOwner, readLease, tryListLeases } from './lease-files.ts';
import { stretchContains } from './stretch.ts';

export interface RangeUse {
  readonly network: string;
  /** As configured: `10.1.0.0/24`, or with its ends. */
  readonly range: string;
  readonly used: number;
  /** Number of addresses that can be handed out, without gateways and exclusions; approximate for an IPv6 range too large for a number. */
  readonly size: number;
}

/** The ranges among which a container gets one address, together. */
export interface PoolUse extends Omit<RangeUse, 'range'> {
  readonly ranges: readonly string[];
  /** Lease directory, and the addresses in use. */
  readonly leaseDir: string;
  readonly held: readonly string[];
}

/** Like {@link rangeUsesOf}, one entry for each set: as long as one range of a set has a free address, the next ADD succeeds. */
export function poolUsesOf(list: NetworkPlugins, find: FindAbout): PoolUse[] {
  const pools = new Map<string, PoolUse>();
  for (const { range, leaseDir = '', used, size } of measure(rangesOf(list, find))) {
    const key = `${leaseDir}\n${range.set}`;
    const before = pools.get(key);
    pools.set(key, {
      network: list.name,
      leaseDir,
      ranges: [...(before?.ranges ?? []), range.text],
      held: [...(before?.held ?? []), ...used.map(renderIp)],
      used: (before?.used ?? 0) + used.length,
      size: (before?.size ?? 0) + size,
    });
  }
  return [...pools.values()];
}

/** The ranges that a network's plugins lease from, blocks of a cluster's pools as well. A missing directory counts as no leases. */
export function rangeUsesOf(list: NetworkPlugins, find: FindAbout): RangeUse[] {
  return measure(leasedRangesOf(list, find)).map(({ range, used, size }) => {
    return { network: list.name, range: range.text, used: used.length, size };
  });
}

function measure(ranges: ReturnType<typeof rangesOf>) {
  const held = new Map(ranges.map(({ leaseDir = '' }) => [leaseDir, tryListLeases(leaseDir).map(parseIp)]));
  return ranges.map(({ range, leaseDir }) => {
    const siblings = ranges.filter(other => other.leaseDir === leaseDir && other.range.set === range.set);
    const gateways = siblings.flatMap(other => other.range.gateway ?? []);
    return { range, leaseDir, ...useOf(range, gateways, held.get(leaseDir ?? '') ?? []) };
  });
}

/**
 * Counts the addresses available to containers and those in use. A gateway of the set is never handed out, and neither is what the
 * range leaves out, so neither number includes them.
 * @param gateways of the whole set, since one may lie in the range of another
 */
function useOf({ start, end, except = [] }: AddressRange, gateways: readonly Ip[], held: readonly Ip[]) {
  const isInside = (ip: Ip) =>
    stretchContains([start, end], ip) && !except.some(part => stretchContains(part, ip));
  const reserved = new Set(gateways.filter(isInside).map(({ value }) => value));
  const used = held.filter(ip => isInside(ip) && !reserved.has(ip.value));
  const sizeOf = (from: Ip, to: Ip) => to.value - from.value + 1n;
  const left = except.reduce((sum, [from, to]) => sum - sizeOf(from, to), sizeOf(start, end));
  return { used, size: Number(left) - reserved.size };
}

/** Undefined also if its lease cannot be read. */
export function findOwnerOf(dir: string, address: string): Owner | undefined {
  return attempt(() => parseOwner(readLease(dir, address) ?? ''));
}
