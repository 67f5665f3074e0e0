// How full are the address ranges of a conflist?
import { join } from 'node:path';
import { isObject, type JsonObject } from '../cni/json.ts';
import { findCidr, lastOf, networkOf } from '../net/cidr.ts';
import { findIp, type Ip } from '../net/ip.ts';
import { listLeases } from './lease-files.ts';
import { DEFAULT_DATA_DIR } from './lease-store.ts';

/** A range of addresses, and how many of them are in use. */
export interface RangeUse {
  readonly network: string;
  /** As configured: `10.1.0.0/24`, or with its ends. */
  readonly range: string;
  readonly subnet: string;
  /** Directory of the leases. */
  readonly dir: string;
  readonly used: number;
  /** Number of addresses that can be handed out, without gateways; approximate for an IPv6 range too large for a number. */
  readonly size: number;
}

/** The part of a conflist that configures IPAM. */
export interface ListWithIpam {
  readonly name: string;
  readonly plugins: readonly { readonly conf: JsonObject }[];
}

/** The ranges of host-local, in every plugin of the conflist that uses it. A missing directory counts as no leases. */
export function rangesOf({ name, plugins }: ListWithIpam): RangeUse[] {
  return plugins.flatMap(({ conf: { ipam } }) => {
    if (!isObject(ipam) || ipam.type !== 'host-local') return [];
    const dataDir = typeof ipam.dataDir === 'string' && ipam.dataDir ? ipam.dataDir : DEFAULT_DATA_DIR;
    const dir = join(dataDir, name);
    const held = leasesIn(dir);
    const sets = Array.isArray(ipam.ranges) ? ipam.ranges : [];
    return [[ipam], ...sets].flatMap(set => {
      const ranges = [set].flat().flatMap(readRange);
      const gateways = ranges.map(({ gateway }) => gateway);
      return ranges.map(range => ({ network: name, dir, ...useOf(range, gateways, held) }));
    });
  });
}

/** A range with its defaults filled in, and its texts as configured. */
interface ReadRange {
  readonly subnet: string;
  readonly range: string;
  readonly family: Ip['family'];
  readonly lowest: bigint;
  readonly highest: bigint;
  readonly gateway: bigint;
}

function leasesIn(dir: string): Ip[] {
  try {
    return listLeases(dir).flatMap(text => findIp(text) ?? []);
  } catch {
    return [];
  }
}

function readRange(raw: unknown): ReadRange[] {
  if (!isObject(raw) || typeof raw.subnet !== 'string') return [];
  const subnet = findCidr(raw.subnet);
  if (subnet === undefined) return [];
  const { family } = subnet.ip;
  const first = networkOf(subnet).value + 1n;
  // The network address is not handed out, nor is the broadcast address in IPv4.
  const last = lastOf(subnet).value - (family === 4 ? 1n : 0n);
  const ends = raw.rangeStart || raw.rangeEnd ? ` ${raw.rangeStart ?? ''}-${raw.rangeEnd ?? ''}` : '';
  return [
    {
      subnet: raw.subnet,
      range: `${raw.subnet}${ends}`,
      family,
      lowest: endOf(raw.rangeStart) ?? first,
      highest: endOf(raw.rangeEnd) ?? last,
      gateway: endOf(raw.gateway) ?? first,
    },
  ];
}

/**
 * Counts the addresses available to containers and those in use. A gateway of the set is never handed out, so neither number
 * includes it.
 * @param gateways of the whole set, since one may lie in the range of another
 */
function useOf(
  { subnet, range, family, lowest, highest }: ReadRange,
  gateways: readonly bigint[],
  held: readonly Ip[],
): Pick<RangeUse, 'subnet' | 'range' | 'used' | 'size'> {
  const isInside = (value: bigint) => value >= lowest && value <= highest;
  const reserved = new Set(gateways.filter(isInside));
  const used = held.filter(ip => ip.family === family && isInside(ip.value) && !reserved.has(ip.value));
  const size = highest >= lowest ? highest - lowest + 1n - BigInt(reserved.size) : 0n;
  return { subnet, range, used: used.length, size: Number(size) };
}

function endOf(text: unknown): bigint | undefined {
  return typeof text === 'string' ? findIp(text)?.value : undefined;
}
