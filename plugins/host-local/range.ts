// Which addresses may be handed out?
import type { IpRange } from '../../src/cni/schemas.ts';
import { parseStretches, type Stretch, stretchContains, without } from '../../src/ipam/stretch.ts';
import {
  type Cidr,
  cidrContains,
  findCidr,
  findIp,
  type Ip,
  isSmallest,
  lastOf,
  networkOf,
  offsetIp,
  renderCidr,
  renderIp,
  sameIp,
} from '../../src/net/ip.ts';

/** Consecutive addresses within one subnet, both ends included. The gateway is left out wherever it is. */
export interface Range {
  readonly subnet: Cidr;
  readonly start: Ip;
  readonly end: Ip;
  /** None unless configured in the smallest subnets, whose addresses are all for hosts. */
  readonly gateway: Ip | undefined;
}

/** Ranges of one family that do not overlap; each attachment gets one address from the set. */
export type RangeSet = readonly [Range, ...Range[]];

/**
 * Parses the ranges of all sets.
 * @throws Error naming the set (by its index) and what is wrong with it
 */
export function parseRangeSets(raw: readonly (readonly IpRange[])[]): RangeSet[] {
  const sets = raw.map((ranges, i) => {
    try {
      return parseRangeSet(ranges);
    } catch (cause) {
      throw new Error(`Cannot use range set ${i}: ${(cause as Error).message}`, { cause });
    }
  });
  for (const [i, a] of sets.entries()) {
    for (const [j, b] of sets.entries()) {
      const later = i < j ? b.find(one => a.some(other => overlap(one, other))) : undefined;
      if (later) throw new Error(`Cannot use range sets ${i} and ${j}: ${renderOverlap(later, a)}`);
    }
  }
  return sets;
}

/** A configured range, of which not every address need be handed out. */
export interface ConfiguredRange extends Range {
  /** Parts of it that are not handed out: `exclude`, or what is between `addresses`. */
  readonly except: readonly Stretch[];
}

/**
 * One range with its defaults: gateway and start at network + 1, end before the broadcast address. Subnets of one or two addresses have
 * no such addresses, and no gateway by default.
 */
export function parseRange(raw: IpRange): ConfiguredRange {
  const subnet = findCidr(raw.subnet);
  if (subnet === undefined)
    throw new Error(`"subnet" must be address/prefix, found ${JSON.stringify(raw.subnet)}`);
  const { family } = subnet.ip;
  const network = networkOf(subnet);
  if (!sameIp(network, subnet.ip)) {
    const proper = renderCidr({ ip: network, prefix: subnet.prefix });
    throw new Error(`"subnet" ${raw.subnet} has host bits set, its network is ${proper}`);
  }
  const isAll = isSmallest(subnet);
  const first = isAll ? network : offsetIp(network, 1n);
  const last = isAll || family === 6 ? lastOf(subnet) : offsetIp(lastOf(subnet), -1n);
  const start = parseMember(raw.rangeStart, 'rangeStart', subnet) ?? first;
  const end = parseMember(raw.rangeEnd, 'rangeEnd', subnet) ?? last;
  if (start.value > end.value) {
    throw new Error(`"rangeStart" ${renderIp(start)} comes after "rangeEnd" ${renderIp(end)}`);
  }
  const gateway = parseOptionalIp(raw.gateway, 'gateway') ?? (isAll ? undefined : first);
  const excluded = parseStretches(raw.exclude ?? [], 'exclude', subnet);
  if (raw.addresses === undefined) return { subnet, start, end, gateway, except: excluded };
  if (raw.rangeStart || raw.rangeEnd) {
    throw new Error('"addresses" and "rangeStart" or "rangeEnd" exclude each other');
  }
  const listed = parseStretches(raw.addresses, 'addresses', subnet);
  const [from, to] = [listed[0]?.[0], listed.at(-1)?.[1]];
  if (from === undefined || to === undefined) throw new Error('"addresses" is empty');
  const kept = listed.flatMap(stretch => without(stretch, excluded));
  return { subnet, start: from, end: to, gateway, except: without([from, to], kept) };
}

/** The parts of a configured range that are handed out, each of them a range. */
function piecesOf({ except, ...range }: ConfiguredRange): Range[] {
  return without([range.start, range.end], except).map(([start, end]) => ({ ...range, start, end }));
}

/** True when the address lies between the ends of the range. */
export function rangeContains(range: Range, ip: Ip): boolean {
  return stretchContains([range.start, range.end], ip);
}

/** The range of the set that contains the address. */
export function findRange(set: RangeSet, ip: Ip): Range | undefined {
  return set.find(range => rangeContains(range, ip));
}

/** True when the address is a gateway of the set and must not be handed out. */
export function isGateway(set: RangeSet, ip: Ip): boolean {
  return set.some(({ gateway }) => gateway && sameIp(gateway, ip));
}

/** How many addresses the set can hand out: all of its ranges, less the gateways in them. */
export function capacityOf(set: RangeSet): bigint {
  const gateways = new Set(
    set.flatMap(({ gateway }) => (gateway && inSet(set, gateway.value) ? gateway.value : [])),
  );
  return set.reduce((sum, range) => sum + sizeOf(range), 0n) - BigInt(gateways.size);
}

/** Number of addresses from start to end. */
function sizeOf(range: Range): bigint {
  return range.end.value - range.start.value + 1n;
}

/** `start-end[,start-end]` */
export function renderRangeSet(set: RangeSet): string {
  return set.map(({ start, end }) => `${renderIp(start)}-${renderIp(end)}`).join(',');
}

function parseRangeSet(raw: readonly IpRange[]): RangeSet {
  if (raw.length === 0) throw new Error('it has no ranges');
  const [first, ...rest] = raw.map(parseRange).flatMap(piecesOf);
  if (first === undefined) throw new Error('"exclude" leaves no address of it');
  const set: RangeSet = [first, ...rest];
  for (const [i, range] of set.entries()) {
    if (range.start.family !== first.start.family) throw new Error('it mixes IPv4 and IPv6');
    const other = set.slice(0, i).find(earlier => overlap(earlier, range));
    if (other) throw new Error(renderOverlap(range, [other]));
  }
  return set;
}

/** By its subnet, which is in the configuration, whatever part of it is meant. */
function renderOverlap({ subnet, start, end }: Range, earlier: RangeSet): string {
  const part = `${renderIp(start)}-${renderIp(end)}`;
  return `"subnet" ${renderCidr(subnet)} (${part}) overlaps ${renderRangeSet(earlier)}`;
}

function parseMember(text: string | undefined, key: string, subnet: Cidr): Ip | undefined {
  const ip = parseOptionalIp(text, key);
  if (ip && !cidrContains(subnet, ip)) {
    throw new Error(`"${key}" ${renderIp(ip)} is not in network ${renderCidr(subnet)}`);
  }
  return ip;
}

/** An empty string counts as absent, as in the reference. */
function parseOptionalIp(text: string | undefined, key: string): Ip | undefined {
  if (text === undefined || text === '') return undefined;
  const ip = findIp(text);
  if (ip === undefined) throw new Error(`"${key}" must be an IP address, found ${JSON.stringify(text)}`);
  return ip;
}

function overlap(a: Range, b: Range): boolean {
  return rangeContains(a, b.start) || rangeContains(b, a.start);
}

function inSet(set: RangeSet, value: bigint): boolean {
  return set.some(({ start, end }) => value >= start.value && value <= end.value);
}
