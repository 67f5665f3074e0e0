// What is this attachment to get, before free addresses are looked up?

import { type CniArgs, pickCniArgs } from '../../src/cni/env.ts';
import { CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import {
  atLeast,
  type Result,
  type ResultDns,
  type ResultRoute,
  renderRoutes,
  resultIp,
  type SpecVersion,
} from '../../src/cni/result.ts';
import type { IpRange } from '../../src/cni/schemas.ts';
import { type Owner, renderAttachment } from '../../src/ipam/lease-files.ts';
import {
  inSearchOrder,
  joined,
  parseStretches,
  type Stretch,
  stretchContains,
  without,
} from '../../src/ipam/stretch.ts';
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
import type { HostLocalConf } from './config.ts';

/** Consecutive addresses within one subnet, both ends included. The gateway is left out wherever it is. */
interface Range {
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
  return sets.map((set, i) => withoutGatewaysOf(sets, set, i));
}

/** A bridge has the gateways of all sets, wherever they are. */
function withoutGatewaysOf(sets: readonly RangeSet[], set: RangeSet, index: number): RangeSet {
  const gateways = sets.flat().flatMap(({ gateway }) => gateway ?? []);
  const foreign = gateways.filter(ip => findRange(set, ip) && !isGateway(set, ip));
  const except = joined(foreign.map((ip): Stretch => [ip, ip]));
  const [first, ...rest] = set.flatMap(range => piecesOf({ ...range, except }));
  if (first) return [first, ...rest];
  throw new Error(`Cannot use range set ${index}: gateways of other range sets leave no address of it`);
}

/** A configured range, of which not every address need be handed out. */
interface ConfiguredRange extends Range {
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
  const from = parseMember(raw.rangeStart, 'rangeStart', subnet) ?? first;
  const to = parseMember(raw.rangeEnd, 'rangeEnd', subnet) ?? last;
  // Bounds may be the subnet's own addresses, which no container can have.
  const start = from.value < first.value ? first : from;
  const end = to.value > last.value ? last : to;
  if (start.value > end.value) {
    throw new Error(
      `"rangeStart" ${renderIp(start)} comes after "rangeEnd" ${renderIp(end)}: no address is between them`,
    );
  }
  const gateway = parseOptionalIp(raw.gateway, 'gateway') ?? (isAll ? undefined : first);
  const excluded = parseStretches(raw.exclude ?? [], 'exclude', subnet);
  if (raw.addresses === undefined) return { subnet, start, end, gateway, except: excluded };
  if (raw.rangeStart || raw.rangeEnd) {
    throw new Error('"addresses" and "rangeStart" or "rangeEnd" exclude each other');
  }
  const listed = parseStretches(raw.addresses, 'addresses', subnet);
  const [lowest, highest] = [listed[0]?.[0], listed.at(-1)?.[1]];
  if (lowest === undefined || highest === undefined) throw new Error('"addresses" is empty');
  // A subnet of addresses may begin or end where the whole one does; who names such an address alone means it.
  const ends = isAll ? [] : [network, ...(family === 6 ? [] : [lastOf(subnet)])];
  const implied = ends.filter(ip => !raw.addresses?.includes(renderIp(ip))).map((ip): Stretch => [ip, ip]);
  // In turn: they may overlap.
  const left = listed.flatMap(stretch => without(stretch, implied));
  const kept = left.flatMap(stretch => without(stretch, excluded));
  return { subnet, start: lowest, end: highest, gateway, except: without([lowest, highest], kept) };
}

/** The parts of a configured range that are handed out, each of them a range. */
function piecesOf({ except, ...range }: ConfiguredRange): Range[] {
  return without([range.start, range.end], except).map(([start, end]) => ({ ...range, start, end }));
}

/** True when the address lies between the ends of the range. */
function rangeContains(range: Range, ip: Ip): boolean {
  return stretchContains([range.start, range.end], ip);
}

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
    set.flatMap(({ gateway }) => (gateway && findRange(set, gateway) ? gateway.value : [])),
  );
  return set.reduce((sum, { start, end }) => sum + end.value - start.value + 1n, -BigInt(gateways.size));
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

/** Codes of our own (100 and up are free for plugins); listed in the README. */
export const HostLocalCode = {
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

interface PoolRequest {
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
  findLastReserved(setIndex: number): Ip | undefined;
}

/**
 * Chooses one address from every set: the first requested one in it, otherwise the next free one after the last one handed out.
 * @throws SetExhausted, or CniError 101 and 102 for requested addresses
 */
export function allocate(plan: PoolRequest, leases: Leases): Allocation[] {
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

/** What to allocate: one address from each set, specific ones if requested, and routes. */
export interface Plan extends PoolRequest {
  readonly routes: readonly ResultRoute[];
}

/**
 * Combines all sources: range sets from `ipRanges`, then the single range, then `ranges`; addresses from `CNI_ARGS`, then `args`,
 * then `runtimeConfig`.
 * @throws CniError 7 for a configuration that cannot work, 4 for `CNI_ARGS`
 */
export function planAllocation(conf: HostLocalConf, args: CniArgs, version: SpecVersion): Plan {
  return {
    sets: planSets(conf, version),
    requested: planRequested(conf, args),
    routes: renderRoutes(conf.ipam.routes ?? []),
  };
}

/** The range sets in the order in which they are numbered. */
export function planSets(conf: HostLocalConf, version: SpecVersion): RangeSet[] {
  const { subnet, ranges = [] } = conf.ipam;
  const single = subnet ? [[{ ...conf.ipam, subnet }]] : [];
  const sets = asInvalidConfig(() =>
    parseRangeSets([...(conf.runtimeConfig?.ipRanges ?? []), ...single, ...ranges]),
  );
  if (sets.length === 0) throw invalidConfig('Cannot allocate addresses: the configuration has no ranges');
  const families = sets.map(([range]) => range.start.family);
  if (!atLeast(version, '0.3.0') && new Set(families).size < families.length) {
    throw invalidConfig(
      `Cannot use several range sets of one family: version ${version} allows one, 0.3.0 and newer allow more`,
    );
  }
  return sets;
}

/** The result of an ADD: addresses in the order of their sets. */
export function planResult(
  allocations: readonly Allocation[],
  plan: Plan,
  dns: ResultDns | undefined,
): Result {
  const ips = allocations.map(({ ip, range: { subnet, gateway } }) =>
    resultIp({ cidr: { ip, prefix: subnet.prefix }, gateway }),
  );
  return { ips, ...(plan.routes.length ? { routes: [...plan.routes] } : {}), ...defined({ dns }) };
}

/** The leases to restore for addresses that are reported but not leased; addresses in no set are ignored. */
export function planLeases(
  sets: readonly RangeSet[],
  addresses: readonly string[],
): { readonly ip: Ip; readonly setIndex: number }[] {
  return addresses.flatMap(address => {
    const ip = findIp(address);
    const setIndex = ip === undefined ? -1 : sets.findIndex(set => findRange(set, ip));
    return ip === undefined || setIndex < 0 ? [] : [{ ip, setIndex }];
  });
}

function planRequested(conf: HostLocalConf, args: CniArgs): Ip[] {
  const { IP: fromArgs } = pickCniArgs(args, ['IP']);
  const sources: [string, number, readonly string[]][] = [
    ['CNI_ARGS "IP"', ErrorCode.invalidEnvironment, fromArgs ? [fromArgs] : []],
    ['"args.cni.ips"', ErrorCode.invalidConfig, conf.args?.cni?.ips ?? []],
    ['"runtimeConfig.ips"', ErrorCode.invalidConfig, conf.runtimeConfig?.ips ?? []],
  ];
  const requested: Ip[] = [];
  for (const [source, code, texts] of sources) {
    for (const text of texts) {
      const ip = findIp(text) ?? findCidr(text)?.ip;
      if (ip === undefined) {
        throw new CniError(
          code,
          `Cannot use ${source}: ${JSON.stringify(text)} is not an IP address, with or without prefix length`,
        );
      }
      if (!requested.some(other => sameIp(other, ip))) requested.push(ip);
    }
  }
  return requested;
}

function asInvalidConfig<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw invalidConfig((cause as Error).message, { cause });
  }
}
