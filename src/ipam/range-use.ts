// How full are the ranges of addresses that a list hands out?
import { join } from 'node:path';
import { isObject, type JsonObject } from '../cni/json.ts';
import { findCidr, lastOf, networkOf } from '../net/cidr.ts';
import { findIp, type Ip } from '../net/ip.ts';
import { listLeases } from './lease-files.ts';
import { DEFAULT_DATA_DIR } from './lease-store.ts';

/** A range of addresses, and how many of it are held. */
export interface RangeUse {
  readonly network: string;
  /** As it is configured: `10.1.0.0/24`, or with its ends. */
  readonly range: string;
  readonly subnet: string;
  /** Directory of the leases. */
  readonly dir: string;
  readonly used: number;
  /** Addresses that could be handed out; beyond what a number holds for large IPv6 ranges. */
  readonly size: number;
}

/** The part of a list that says who hands out addresses. */
export interface ListWithIpam {
  readonly name: string;
  readonly plugins: readonly { readonly conf: JsonObject }[];
}

/** The ranges of host-local, wherever in the list it is asked. A directory that nobody leased from holds no leases. */
export function rangesOf({ name, plugins }: ListWithIpam): RangeUse[] {
  return plugins.flatMap(({ conf: { ipam } }) => {
    if (!isObject(ipam) || ipam.type !== 'host-local') return [];
    const dataDir = typeof ipam.dataDir === 'string' && ipam.dataDir ? ipam.dataDir : DEFAULT_DATA_DIR;
    const dir = join(dataDir, name);
    const held = leasesIn(dir);
    const sets = Array.isArray(ipam.ranges) ? ipam.ranges.flat() : [];
    return [ipam, ...sets].flatMap(range => useOf(name, dir, range, held));
  });
}

function leasesIn(dir: string): Ip[] {
  try {
    return listLeases(dir).flatMap(text => findIp(text) ?? []);
  } catch {
    return [];
  }
}

function useOf(network: string, dir: string, range: unknown, held: readonly Ip[]): RangeUse[] {
  if (!isObject(range) || typeof range.subnet !== 'string') return [];
  const subnet = findCidr(range.subnet);
  if (subnet === undefined) return [];
  // Neither the network's own address nor, in IPv4, the one for all of it is handed out.
  const lowest = endOf(range.rangeStart) ?? networkOf(subnet).value + 1n;
  const highest = endOf(range.rangeEnd) ?? lastOf(subnet).value - (subnet.ip.family === 4 ? 1n : 0n);
  const used = held.filter(
    ({ family, value }) => family === subnet.ip.family && value >= lowest && value <= highest,
  );
  const ends = range.rangeStart || range.rangeEnd ? ` ${range.rangeStart ?? ''}-${range.rangeEnd ?? ''}` : '';
  const size = Number(highest >= lowest ? highest - lowest + 1n : 0n);
  return [{ network, range: `${range.subnet}${ends}`, subnet: range.subnet, dir, used: used.length, size }];
}

function endOf(text: unknown): bigint | undefined {
  return typeof text === 'string' ? findIp(text)?.value : undefined;
}
