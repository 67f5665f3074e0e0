// Which addresses does a pool have, how are they divided into blocks, and which block does a node try to get next?

import * as z from 'zod/mini';
import { type Stretch, stretchContains, stretchesOf, without } from '../ipam/stretch.ts';
import {
  type Cidr,
  cidrContains,
  cidrsOverlap,
  findCidr,
  findIp,
  IP_BITS,
  type Ip,
  isSmallest,
  lastOf,
  networkOf,
  offsetIp,
  renderCidr,
  renderIp,
  sameIp,
  subnetOf,
} from '../net/ip.ts';

/** A pool as its object, or a configuration, describes it. */
export const PoolSpec = z.looseObject({
  subnets: z.array(z.looseObject({ ipv4: z.optional(z.string()), ipv6: z.optional(z.string()) })),
  blockSize: z.optional(z.int()),
  layout: z.optional(z.enum(['routed', 'flat'])),
  gateways: z.optional(z.array(z.string())),
  exclude: z.optional(z.array(z.string())),
});
export type PoolSpec = z.output<typeof PoolSpec>;

/** A pool: its blocks are numbered from 0, over all of its subnets. */
export interface Pool {
  readonly name: string;
  /** Addresses of each family in a block: a power of two. */
  readonly blockSize: number;
  /** `routed`: every block is a subnet of its own. `flat`: all addresses are on one link. */
  readonly layout: 'routed' | 'flat';
  readonly gateways: readonly Ip[];
  readonly subnets: readonly PoolSubnet[];
  /** Of its object. */
  readonly uid?: string;
  /** The mark of its object while nodes claim again what a store that was restored has forgotten. */
  readonly restored?: string;
}

/** A part of a pool: the block that is `n` further has the addresses that are `n` blocks further in each family. */
interface PoolSubnet {
  /** Number of its first block. */
  readonly first: number;
  readonly count: number;
  readonly families: readonly { readonly cidr: Cidr; readonly exclude: readonly Stretch[] }[];
}

export interface BlockShape {
  /** Name of its object: the pool and the first address, so that it does not depend on the order of subnets. */
  readonly name: string;
  /** One for each family. */
  readonly cidrs: readonly Cidr[];
  readonly ranges: readonly BlockRange[];
}

/** Consecutive addresses of a block that may be handed out. */
interface BlockRange {
  readonly stretch: Stretch;
  /** Of the address in a result. */
  readonly prefix: number;
  readonly gateway: Ip | undefined;
}

/** Addresses in a block unless a pool says otherwise. */
export const DEFAULT_BLOCK_SIZE = 64;
/** More blocks are never needed, and numbers of them stay exact. */
const MOST_BLOCKS = 2 ** 31;
/** Network address, gateway, one container, broadcast address. */
const SMALLEST_ROUTED = 4;
const LARGEST = 65_536;

/**
 * A pool with its defaults.
 * @throws Error naming what is wrong
 */
export function parsePool(name: string, spec: PoolSpec): Pool {
  if (!/^[a-z\d]([a-z\d.-]{0,61}[a-z\d])?$/.test(name)) {
    throw new Error(
      `Cannot use pool ${JSON.stringify(name)}: its name must be lower-case letters, digits, "-" and "."`,
    );
  }
  const wrong = (problem: string) => new Error(`Cannot use pool "${name}": ${problem}`);
  const { blockSize = DEFAULT_BLOCK_SIZE, layout = 'routed' } = spec;
  const smallest = layout === 'routed' ? SMALLEST_ROUTED : 1;
  if (blockSize < smallest || blockSize > LARGEST || !Number.isInteger(Math.log2(blockSize)))
    throw wrong(`"blockSize" must be a power of two from ${smallest} to ${LARGEST}, found ${blockSize}`);
  const gateways = (spec.gateways ?? []).map(text => {
    const ip = findIp(text);
    if (ip === undefined) throw wrong(`"gateways" holds ${JSON.stringify(text)}`);
    return ip;
  });
  if (layout === 'routed' && gateways.length)
    throw wrong('"gateways" are for "layout": "flat"; a routed block has one of its own');
  const subnets: PoolSubnet[] = [];
  let first = 0;
  for (const [i, { ipv4, ipv6 }] of spec.subnets.entries()) {
    const cidrs = [ipv4, ipv6].flatMap((text, at) =>
      text === undefined ? [] : [parseSubnet(wrong, `subnets[${i}]`, text, at === 0 ? 4 : 6, blockSize)],
    );
    if (cidrs.length === 0) throw wrong(`subnets[${i}] has neither "ipv4" nor "ipv6"`);
    if (i > 0 && cidrs.length !== subnets[0]?.families.length)
      throw wrong('either all subnets have both families, or none has');
    // Blocks are named after one family: nothing else would keep two nodes from the addresses of the other.
    for (const cidr of cidrs) {
      const other = subnets.flatMap(({ families }) => families).find(one => cidrsOverlap(one.cidr, cidr));
      if (other === undefined) continue;
      const both = `${renderCidr(other.cidr)} and ${renderCidr(cidr)}`;
      throw wrong(`its subnets ${both} overlap: addresses would be handed out twice`);
    }
    const count = Math.min(MOST_BLOCKS, ...cidrs.map(cidr => countIn(cidr, blockSize)));
    const families = cidrs.map(cidr => ({
      cidr,
      exclude: stretchesOf(spec.exclude ?? [], 'exclude', cidr.ip.family),
    }));
    subnets.push({ first, count, families });
    first += count;
  }
  if (subnets.length === 0) throw wrong('it has no subnets');
  return { name, blockSize, layout, gateways, subnets };
}

/** Number of blocks, of those that are excluded as well. */
export function countBlocks({ subnets }: Pool): number {
  return subnets.reduce((sum, { count }) => sum + count, 0);
}

/** Numbers of which blocks are counted one by one; beyond that, exclusions hardly matter. */
const MOST_COUNTED = 1 << 17;

/** Number of blocks that have an address to hand out; of very large pools, of all blocks. */
export function countUsable(pool: Pool): number {
  const count = countBlocks(pool);
  if (count > MOST_COUNTED) return count;
  let usable = 0;
  for (let i = 0; i < count; i++) if (blockAt(pool, i) !== undefined) usable++;
  return usable;
}

/** A block by its number. @returns undefined if a family of it has no address to hand out */
function blockAt(pool: Pool, index: number): BlockShape | undefined {
  const subnet = pool.subnets.find(({ first, count }) => index >= first && index < first + count);
  return subnet && shapeIn(pool, subnet, BigInt(index - subnet.first));
}

/** A block by its number in a subnet, which may be one that is never chosen at random. */
function shapeIn(pool: Pool, { families }: PoolSubnet, number: bigint): BlockShape | undefined {
  const parts = families.map(({ cidr, exclude }) => {
    const ip = offsetIp(cidr.ip, number * BigInt(pool.blockSize));
    const block = { ip, prefix: IP_BITS[ip.family] - Math.log2(pool.blockSize) };
    return { block, ranges: cidrContains(cidr, ip) ? rangesOf(pool, cidr, block, exclude) : [] };
  });
  const [head] = parts;
  if (head === undefined || parts.some(({ ranges }) => ranges.length === 0)) return undefined;
  return {
    name: blockName(pool.name, head.block.ip),
    cidrs: parts.map(({ block }) => block),
    ranges: parts.flatMap(({ ranges }) => ranges),
  };
}

/** The block that may hand out all of these addresses; undefined if there is none. */
export function blockWith(pool: Pool, ips: readonly Ip[]): BlockShape | undefined {
  const [ip] = ips;
  if (ip === undefined) return undefined;
  for (const subnet of pool.subnets) {
    const part = subnet.families.find(({ cidr }) => cidrContains(cidr, ip));
    if (part === undefined) continue;
    const block = shapeIn(pool, subnet, (ip.value - part.cidr.ip.value) / BigInt(pool.blockSize));
    const isIn = (one: Ip) => block?.ranges.some(({ stretch }) => stretchContains(stretch, one)) ?? false;
    return ips.every(isIn) ? block : undefined;
  }
  return undefined;
}

export function blockName(pool: string, ip: Ip): string {
  return `${pool}-${nameOf(ip)}`;
}

/** An address as part of an object's name, which must not contain colons, nor begin or end with a dash. */
export function nameOf(ip: Ip): string {
  const text = renderIp(ip).replaceAll(':', '-');
  return `${text.startsWith('-') ? '0' : ''}${text}${text.endsWith('-') ? '0' : ''}`;
}

function rangesOf(pool: Pool, subnet: Cidr, block: Cidr, exclude: readonly Stretch[]): BlockRange[] {
  const { ip } = block;
  const last = lastOf(block);
  if (pool.layout === 'routed') {
    const gateway = offsetIp(ip, 1n);
    const end = ip.family === 4 ? offsetIp(last, -1n) : last;
    return without([offsetIp(ip, 2n), end], exclude).map(stretch => {
      return { stretch, prefix: block.prefix, gateway };
    });
  }
  const gateways = pool.gateways.filter(({ family }) => family === ip.family);
  const gateway = gatewayOf(gateways, subnet);
  // The address of the subnet itself is that of all its routers in IPv6, the last one a broadcast in IPv4.
  const ends = isSmallest(subnet) ? [] : [subnet.ip, ...(ip.family === 4 ? [lastOf(subnet)] : [])];
  const special = [...ends, ...gateways];
  const taken = special.map((one): Stretch => [one, one]);
  return taken
    .reduce((left, one) => left.flatMap(part => without(part, [one])), without([ip, last], exclude))
    .map(stretch => ({ stretch, prefix: subnet.prefix, gateway }));
}

/** The router of a subnet: the one in it, or else the first. @param gateways of its family */
export function gatewayOf(gateways: readonly Ip[], subnet: Cidr): Ip | undefined {
  return gateways.find(ip => cidrContains(subnet, ip)) ?? gateways[0];
}

function parseSubnet(
  refuse: (problem: string) => Error,
  key: string,
  text: string,
  family: 4 | 6,
  blockSize: number,
): Cidr {
  const cidr = findCidr(text);
  const wrong = (problem: string) => refuse(`${key} "ipv${family}" ${problem}`);
  if (cidr?.ip.family !== family)
    throw wrong(`must be a subnet of IPv${family}, found ${JSON.stringify(text)}`);
  const network = networkOf(cidr);
  if (!sameIp(network, cidr.ip))
    throw wrong(`${text} has host bits set, its network is ${renderCidr(subnetOf(cidr))}`);
  if (countIn(cidr, blockSize) < 1) throw wrong(`${text} is smaller than a block of ${blockSize} addresses`);
  return cidr;
}

function countIn({ ip, prefix }: Cidr, blockSize: number): number {
  return 2 ** (IP_BITS[ip.family] - prefix) / blockSize;
}

/** Blocks tried before the list is read. While less than three quarters of a pool are taken, one of them is free in two of three cases. */
const BLIND_TRIES = 4;
/** Numbers looked at from a random place on, before it counts as exhausted: as many as there are, but a bound for pools of IPv6. */
const MOST_LOOKED_AT = 1 << 20;

/**
 * The first blocks to be tried: one that follows from a name, so that a node that was reinstalled tries its former one first, then others
 * at random. Each is new to one who asks again, as a sequence of its own would not be: what others have taken of it would be tried again
 * and again.
 * @param asker name with a place of its own; undefined for one who has used that already
 * @param owned names that are known to be taken
 */
export function firstChoices(
  pool: Pool,
  asker: string | undefined,
  owned: ReadonlySet<string>,
  random: () => number,
): BlockShape[] {
  const count = countBlocks(pool);
  const choices = new Map<string, BlockShape>();
  for (let i = 0; choices.size < BLIND_TRIES && i < 4 * BLIND_TRIES; i++) {
    const place = i === 0 && asker !== undefined ? hashOf(asker) % count : Math.floor(random() * count);
    const block = blockAt(pool, place);
    if (block && !owned.has(block.name)) choices.set(block.name, block);
  }
  return [...choices.values()];
}

/** A free block, at random. @returns undefined if there is none */
export function anyFree(
  pool: Pool,
  taken: ReadonlySet<string>,
  random: () => number,
): BlockShape | undefined {
  const count = countBlocks(pool);
  const start = Math.floor(random() * count);
  for (let i = 0; i < Math.min(count, MOST_LOOKED_AT); i++) {
    const block = blockAt(pool, (start + i) % count);
    if (block && !taken.has(block.name)) return block;
  }
  return undefined;
}

/** FNV-1a, and the finish of MurmurHash3, without which similar names are neighbours. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
