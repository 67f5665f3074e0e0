// Which free addresses of this node's blocks does an attachment get?
import type { LeaseStore } from '../ipam/lease-store.ts';
import { inSearchOrder, type Stretch, stretchContains } from '../ipam/stretch.ts';
import { FAMILIES, type Ip } from '../net/ip.ts';
import { type Held, type HeldBlock, type Usable, usableOf } from './held.ts';
import { isFor, type Wish } from './wish.ts';

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
    const usable = blocks.map(block => usableOf(block).filter(({ from }) => from.family === family));
    if (!usable.some(ranges => ranges.length)) continue;
    const found = nextFree(usable, setIndex, store);
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
  const counts = FAMILIES.flatMap(family => {
    const ranges = blocksOf(held, pool)
      .flatMap(usableOf)
      .filter(({ from }) => from.family === family);
    if (ranges.length === 0) return [];
    const size = ranges.reduce((sum, { from, to }) => sum + Number(to.value - from.value) + 1, 0);
    const used = ranges.reduce((sum, { from, to }) => sum + store.countTaken(from, to), 0);
    return [{ size, used, free: size - used }];
  });
  return counts.reduce(
    (least, one) => (one.free < least.free ? one : least),
    counts[0] ?? { size: 0, used: 0, free: 0 },
  );
}

/** Whether an address of the block is leased. */
export function isInUse(block: HeldBlock, store: Pick<LeaseStore, 'countTaken'>): boolean {
  return usableOf(block).some(({ from, to }) => store.countTaken(from, to) > 0);
}

/** Whether the address is one that the block may hand out. */
export function blockContains(block: HeldBlock, ip: Ip): boolean {
  return usableOf(block).some(({ from, to }) => stretchContains([from, to], ip));
}

function blocksOf(held: Held | undefined, pool: string, wish?: Wish): readonly HeldBlock[] {
  const isUsable = (block: HeldBlock) => block.state === 'held' && block.pool === pool && isFor(block, wish);
  return held?.blocks.filter(isUsable) ?? [];
}
