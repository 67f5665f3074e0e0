// Which addresses does each range have, and what are its objects called?
import { type CniError, invalidConfig, orTell, tryAgainLater } from '../../src/cni/errors.ts';
import { inSearchOrder, parseStretches, type Stretch, without } from '../../src/ipam/stretch.ts';
import {
  type Cidr,
  cidrContains,
  cidrsOverlap,
  findCidr,
  findIp,
  hostCidr,
  type Ip,
  isSmallest,
  lastOf,
  offsetIp,
  renderCidr,
  renderIp,
  subnetOf,
} from '../../src/net/ip.ts';
import type { Ipam, RangeConf } from './config.ts';

export interface Range {
  /** The whole subnet, or this node's slice of it; entries are numbered from its first address on. */
  readonly subnet: Cidr;
  /** Of the addresses in a result. */
  readonly prefix: number;
  readonly free: readonly Stretch[];
  /** Of its object. */
  readonly poolName: string;
}

/**
 * The ranges in the order of the result.
 * @throws CniError 7
 */
export function planRanges(ipam: Ipam): Range[] {
  const raw = rawRanges(ipam);
  if (ipam.node_slice_size && raw.length > 1) {
    // The controller slices the first range alone; the original hands out its slice for every range.
    throw invalid('"node_slice_size" is for one range, and the configuration has several');
  }
  if (raw.length === 0) throw invalid('the configuration has neither "range" nor "ipRanges"');
  const gateway = ipam.gateway ? findIp(decimal(ipam.gateway)) : undefined;
  if (ipam.gateway && gateway === undefined)
    throw invalid(`"gateway" is no address: ${JSON.stringify(ipam.gateway)}`);
  const ranges = raw.map(one => parseRange(one, gateway, ipam.network_name ?? ''));
  for (const [i, one] of ranges.entries()) {
    const other = ranges.slice(0, i).find(({ subnet }) => cidrsOverlap(subnet, one.subnet));
    // The reservation of an interface would admit the same address from both.
    if (other) throw invalid(`ranges ${renderCidr(other.subnet)} and ${renderCidr(one.subnet)} overlap`);
  }
  return ranges;
}

/**
 * The same ranges without what they hand out, for DEL and GC: what the original has allocated by a list that {@link planRanges} refuses
 * is released as well.
 * @param skip learns of one that is no subnet, which no ADD can have used
 * @throws CniError 7 for such a one, unless it is skipped
 */
export function poolsOf(ipam: Ipam, skip?: (problem: CniError) => void): Range[] {
  const poolOf = (one: RangeConf) => ({ ...placeOf(subnetIn(one), ipam.network_name ?? ''), free: [] });
  return rawRanges(ipam).flatMap(one => (skip ? (orTell(skip, () => poolOf(one)) ?? []) : poolOf(one)));
}

function rawRanges(ipam: Ipam): RangeConf[] {
  return [...(ipam.range ? [ipam as RangeConf] : []), ...(ipam.ipRanges ?? [])];
}

/** Name of the reservation of an address in the whole cluster. */
export function reservationName(ip: Ip, network = ''): string {
  return `${network ? `${network}-` : ''}${named(renderIp(ip))}`;
}

/** The key of an entry: its distance from the first address. */
export function offsetOf({ subnet }: Range, ip: Ip): string {
  return String(ip.value - subnet.ip.value);
}

/** The address of an entry; undefined if the key is not a number of the range. */
export function addressOf({ subnet }: Range, offset: string): Ip | undefined {
  if (!/^\d+$/.test(offset)) return undefined;
  const ip = offsetIp(subnet.ip, BigInt(offset));
  return cidrContains(subnet, ip) ? ip : undefined;
}

/** What a node knows of a range itself. */
export interface Local {
  /** The address that it got last. */
  readonly last: Ip | undefined;
  /** Those that it has noted for attachments. */
  readonly noted: ReadonlySet<string>;
}

const NOTHING_LOCAL: Local = { last: undefined, noted: new Set() };

/**
 * The first address that no entry has: after the one that this node got last, so that one that cannot be used does not stop all ADDs. What the
 * node has noted comes last: who lost its entry may still use the address.
 */
export function nextFree(
  { subnet, free }: Range,
  taken: ReadonlySet<string>,
  { last, noted }: Local = NOTHING_LOCAL,
): Ip | undefined {
  let fallback: Ip | undefined;
  for (const [from, to] of inSearchOrder(free, last)) {
    for (let { value } = from; value <= to.value; value++) {
      if (taken.has(String(value - subnet.ip.value))) continue;
      const ip = { family: from.family, value };
      if (!noted.has(renderIp(ip))) return ip;
      fallback ??= ip;
    }
  }
  return fallback;
}

function parseRange(raw: RangeConf, gateway: Ip | undefined, network: string): Range {
  const { head, tail, whole } = subnetIn(raw);
  const subnet = subnetOf(whole);
  const ends = endsOf(subnet);
  const member = (key: string, text: string | undefined, otherwise: Ip): Ip => {
    if (!text) return otherwise;
    const ip = findIp(decimal(text));
    if (ip && cidrContains(subnet, ip)) return ip;
    // The original ignores it without a word, and hands out what was not meant.
    throw invalid(`"${key}" ${JSON.stringify(text)} is no address of ${renderCidr(subnet)}`);
  };
  const start = member('range_start', tail === undefined ? raw.range_start : head, ends[0]);
  const end = member('range_end', tail === undefined ? raw.range_end : renderIp(whole.ip), ends[1]);
  // The ends of the subnet itself are no hosts' addresses, and the original hands out neither.
  const [from, to] = within([start, end], ends);
  if (from.value > to.value)
    throw invalid(`"range_start" ${renderIp(from)} comes after "range_end" ${renderIp(to)}`);
  const excluded = [
    ...(raw.exclude ?? []).flatMap(text => clipped(text, subnet)),
    ...(gateway && cidrContains(subnet, gateway) ? [renderIp(gateway)] : []),
  ];
  let free: Stretch[];
  try {
    free = without([from, to], parseStretches(excluded, 'exclude', subnet));
  } catch (cause) {
    throw invalid((cause as Error).message);
  }
  return { ...placeOf({ whole }, network), free };
}

function within([from, to]: Stretch, [first, last]: Stretch): Stretch {
  return [from.value > first.value ? from : first, to.value < last.value ? to : last];
}

/** The parts of `range`: a subnet, or first and last address. */
function subnetIn({ range = '' }: RangeConf) {
  const [head = '', tail] = range.split('-').map(decimal);
  const whole = findCidr(tail ?? head);
  if (whole === undefined) throw invalid(`"range" must be a subnet, found ${JSON.stringify(range)}`);
  return { head, tail, whole };
}

function placeOf({ whole }: { readonly whole: Cidr }, network: string): Omit<Range, 'free'> {
  const subnet = subnetOf(whole);
  const poolName = `${network ? `${network}-` : ''}${named(renderCidr(subnet))}`;
  return { subnet, prefix: subnet.prefix, poolName };
}

/** To the original, what is excluded outside of a range or around it is no mistake: ranges of a list share what they exclude. */
function clipped(text: string, subnet: Cidr): string[] {
  const cidr = findNet(text);
  if (cidr && !cidrsOverlap(cidr, subnet)) return [];
  return [cidr ? renderCidr(cidr.prefix < subnet.prefix ? subnet : cidr) : text];
}

/** A subnet, or an address alone. */
export function findNet(text: string): Cidr | undefined {
  const ip = findIp(decimal(text));
  return ip ? hostCidr(ip) : findCidr(decimal(text));
}

/** To the original, octets are decimal even if they begin with zeros. */
export function decimal(text: string): string {
  return text.trim().replaceAll(/\b0+(?=\d)/g, '');
}

/** First and last address to hand out. The original has none in the smallest subnets. */
function endsOf(subnet: Cidr): Stretch {
  if (isSmallest(subnet)) return [subnet.ip, lastOf(subnet)];
  return [offsetIp(subnet.ip, 1n), offsetIp(lastOf(subnet), -1n)];
}

/** The objects that may have the slices of a range, likeliest first: releases of whereabouts name them differently. */
export function sliceNames({ subnet }: Range, networkName: string, network: string): string[] {
  return networkName ? [networkName] : [named(renderCidr(subnet)), network];
}

/**
 * This node's slice of a range, without what the range excludes.
 * @throws CniError 11 when that is no subnet of the range
 */
export function sliceOf(range: Range, slice: string, node: string, networkName: string): Range {
  const cidr = findCidr(slice);
  if (cidr === undefined || cidr.prefix < range.subnet.prefix || !cidrContains(range.subnet, cidr.ip)) {
    throw tryAgainLater(
      `Cannot allocate from the slice ${JSON.stringify(slice)} of node "${node}": it is no part of ${renderCidr(range.subnet)}`,
    );
  }
  const pool = poolOfSlice(range, cidr, node, networkName);
  const free = range.free.flatMap((stretch): Stretch[] => {
    const [low, high] = within(stretch, endsOf(pool.subnet));
    return low.value <= high.value ? [[low, high]] : [];
  });
  return { ...pool, free };
}

/** Where the entries of a node's slice of a range are. */
export function poolOfSlice(
  range: Range,
  slice: Cidr,
  node: string,
  networkName: string,
): Omit<Range, 'free'> {
  const subnet = subnetOf(slice);
  const poolName = `${networkName ? `${networkName}-` : ''}${node}-${named(renderCidr(subnet))}`;
  return { subnet, prefix: range.prefix, poolName };
}

function named(text: string): string {
  return (text.endsWith(':') ? `${text}0` : text).replaceAll(':', '-').replaceAll('/', '-');
}

function invalid(problem: string): CniError {
  return invalidConfig(`Cannot allocate addresses: ${problem}`);
}
