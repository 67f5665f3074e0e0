// Which address of this node's blocks does an attachment get, if it asks for one, and if not?

import type { LeaseStore } from '../ipam/lease-store.ts';
import { inSearchOrder, type Stretch, stretchContains, stretchesOf, without } from '../ipam/stretch.ts';
import {
  cidrContains,
  FAMILIES,
  type Family,
  findIp,
  IP_BITS,
  type Ip,
  parseCidr,
  parseIp,
  renderIp,
} from '../net/ip.ts';
import { type ClaimKey, type Held, type HeldBlock, type Terms, type Usable, usableOf } from './held.ts';
import { gatewayOf } from './pool.ts';

/** A wish for particular addresses, or for those that the one before had. Only pools of single addresses grant it. */
export interface Wish {
  /** For whom the addresses are kept afterwards, in the whole cluster: {@link keyOfPod} or {@link keyOfClaim}. */
  readonly keptFor: string | undefined;
  /** Seconds that they are kept while no attachment has them; undefined: until the claim is deleted. */
  readonly keepS: number | undefined;
  /** What they must be; empty if that does not matter. */
  readonly addresses: readonly Ip[];
  /** Whether other addresses than those that are kept would be wrong. */
  readonly isPromise: boolean;
  /** A machine moves here: it is to have what is kept while the attachment that it leaves has it, too. */
  readonly joins?: boolean;
}

/** For an interface of the pods of one name, of which a StatefulSet has one at a time. */
export function keyOfPod(network: string, namespace: string, name: string, ifname: string): string {
  return `pod/${network}/${namespace}/${name}/${ifname}`;
}

export function keyOfClaim({ namespace, name, uid }: ClaimKey): string {
  return `claim/${namespace}/${name}/${uid}`;
}

export function claimOfKey(key: string): ClaimKey | undefined {
  const [kind, namespace = '', name = '', uid = ''] = key.split('/');
  return kind === 'claim' ? { namespace, name, uid } : undefined;
}

/** Whether a block is what is wished for, or with no wish, one for anything. From a block of several addresses, any of them would be leased. */
function isFor(block: HeldBlock, wish: Wish | undefined): boolean {
  if (block.keptFor !== wish?.keptFor || block.idle || (block.guest && !wish?.joins)) return false;
  return wish === undefined || (block.size === 1 && wish.addresses.every(ip => blockContains(block, ip)));
}

/** An address to be leased, as a result reports it. */
export interface ChosenAddress {
  readonly ip: Ip;
  readonly prefix: number;
  readonly gateway: string | undefined;
  /** Of its family: the pointer of the lease directory that moves to it. */
  readonly setIndex: number;
}

/**
 * One address of each family that the blocks have, from the first block with room: so later blocks can become empty, and be
 * given back. In a block, the one after the last that was handed out. What is kept for one is found only by its wish.
 * @returns undefined if a family has none, or there is no block
 */
export function chooseAddresses(
  held: Held | undefined,
  pool: string,
  store: Pick<LeaseStore, 'findFree' | 'findLastReserved'>,
  wish?: Wish,
): ChosenAddress[] | undefined {
  const blocks = blocksOf(held, pool, wish);
  const chosen: ChosenAddress[] = [];
  for (const [setIndex, family] of FAMILIES.entries()) {
    const offered = offeredBy(blocks, family, held?.terms?.[pool]);
    if (offered === undefined) continue;
    const found = nextFree(offered, setIndex, store);
    if (found === undefined) return undefined;
    chosen.push(found);
  }
  return chosen.length ? chosen : undefined;
}

function nextFree(
  blocks: readonly (readonly Usable[])[],
  setIndex: number,
  store: Pick<LeaseStore, 'findFree' | 'findLastReserved'>,
): ChosenAddress | undefined {
  const last = store.findLastReserved(setIndex);
  for (const ranges of blocks) {
    const stretches = ranges.map(({ from, to }): Stretch => [from, to]);
    for (const [from, to] of inSearchOrder(stretches, last)) {
      const ip = store.findFree(from, to);
      const range = ip && ranges.find(one => stretchContains([one.from, one.to], ip));
      if (ip && range) return { ip, prefix: range.prefix, gateway: range.gateway, setIndex };
    }
  }
  return undefined;
}

/** How many addresses the blocks of a pool have, and how many are leased: of the family that has fewest left. */
export function useOf(
  held: Held | undefined,
  pool: string,
  store: Pick<LeaseStore, 'countTaken'>,
): { readonly size: number; readonly used: number; readonly free: number } {
  const blocks = blocksOf(held, pool);
  const counts = FAMILIES.flatMap(family => {
    const ranges = offeredBy(blocks, family, held?.terms?.[pool])?.flat();
    if (ranges === undefined) return [];
    const size = ranges.reduce((sum, { from, to }) => sum + Number(to.value - from.value) + 1, 0);
    const used = ranges.reduce((sum, { from, to }) => sum + store.countTaken(from, to), 0);
    return [{ size, used, free: size - used }];
  });
  const [least] = counts.sort((a, b) => a.free - b.free);
  return least ?? { size: 0, used: 0, free: 0 };
}

/**
 * What each block hands out of one family: not what its pool excludes or no longer has, nor what has become a gateway. What is kept for one
 * was promised before.
 * @returns undefined if no block has addresses of that family, excluded ones included
 */
function offeredBy(
  blocks: readonly HeldBlock[],
  family: Family,
  terms: Terms | undefined,
): Usable[][] | undefined {
  const whole = blocks.map(block => usableOf(block).filter(({ from }) => from.family === family));
  if (!whole.some(ranges => ranges.length)) return undefined;
  if (terms === undefined) return whole;
  const inTerms = readTerms(terms, family);
  return whole.map((ranges, i) => {
    const { keptFor, size = 1 } = blocks[i] ?? {};
    return keptFor === undefined ? ranges.flatMap(one => inTerms(one, size)) : ranges;
  });
}

/** Returns a function that says what the pool hands out now of a range of a block, with the prefix and the router that it has now. */
function readTerms(terms: Terms, family: Family): (one: Usable, blockSize: number) => Usable[] {
  const isOfFamily = (text: string) => (text.includes(':') ? 6 : 4) === family;
  const stretches = stretchesOf([...terms.exclude, ...terms.gateways], 'exclude', family);
  const gateways = terms.gateways.filter(isOfFamily).map(parseIp);
  const subnets = terms.subnets.filter(isOfFamily).map(parseCidr);
  const isFlat = terms.layout === 'flat';
  return (one, blockSize) => {
    // A block lies in one subnet.
    const subnet = subnets.find(cidr => cidrContains(cidr, one.from));
    if (subnet === undefined) return [];
    // A block that was claimed of a flat pool has no address for a router of its own.
    const isRouted = one.gateway !== undefined && one.prefix === IP_BITS[family] - Math.log2(blockSize);
    if (!isFlat && !isRouted) return [];
    const { prefix } = isFlat ? subnet : one;
    const router = gatewayOf(gateways, { ip: one.from, prefix });
    const ways = isFlat ? { prefix, gateway: router && renderIp(router) } : {};
    return without([one.from, one.to], stretches).map(([from, to]) => ({ ...one, from, to, ...ways }));
  };
}

export function isInUse(block: HeldBlock, store: Pick<LeaseStore, 'countTaken'>): boolean {
  return usableOf(block).some(({ from, to }) => store.countTaken(from, to) > 0);
}

/** Whether the address is one that the block may hand out. */
export function blockContains(block: HeldBlock, ip: Ip): boolean {
  return usableOf(block).some(({ from, to }) => stretchContains([from, to], ip));
}

/** Whether an address, as text, is one that one of the blocks may hand out. */
export function isInBlocks(blocks: readonly HeldBlock[], address: string): boolean {
  const ip = findIp(address);
  return ip !== undefined && blocks.some(block => blockContains(block, ip));
}

function blocksOf(held: Held | undefined, pool: string, wish?: Wish): readonly HeldBlock[] {
  const isUsable = (block: HeldBlock) => block.state === 'held' && block.pool === pool && isFor(block, wish);
  return held?.blocks.filter(isUsable) ?? [];
}
