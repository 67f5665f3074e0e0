// Does this node hold what the store says, and neither too few blocks nor too many?
//
// The daemon asks this from time to time, and once addresses become few. Without a daemon, GC does.
import type { LeaseStore } from '../ipam/lease-store.ts';
import { claimBlock, completeReturn, PoolExhausted, settle } from './claim.ts';
import { collect } from './collect.ts';
import { compare } from './compare.ts';
import type { Held, HeldBlock } from './held.ts';
import { findEndedClaims, tellIdle } from './keep.ts';
import { isInUse, useOf } from './lease.ts';
import { type Claimant, type Compared, changeHeld, claiming } from './place.ts';
import type { Pool } from './pool.ts';

/** How many addresses and blocks a node keeps. */
export interface Limits {
  /** With fewer free addresses, another block is claimed before it is needed. */
  readonly lowWater: number;
  /** Seconds that a block stays empty before it is given back. */
  readonly coolDownS: number;
  /** Seconds after which the blocks of a node that the cluster no longer has go back; undefined to look for none. */
  readonly graceS?: number;
}

/** A pool of the network, and how much of it this node keeps. */
export interface TendedPool {
  readonly pool: Pool;
  readonly limits: Limits;
}

/** What was found and done. */
export interface Tended extends Compared {
  readonly claimed: number;
  readonly returned: readonly string[];
  /** Blocks of nodes that have vanished, which are now free. */
  readonly collected: readonly string[];
}

/**
 * Compares this node's blocks with the store, claims one if addresses become few, and gives empty ones back.
 * @throws CniError 11 when the store cannot be reached
 */
export function tend(
  claimant: Claimant,
  pools: readonly TendedPool[],
  deadlineMs: number,
  searchEveryS?: number,
): Promise<Tended> {
  return claiming(claimant, performance.now() + deadlineMs, async () => {
    await settle(claimant);
    const compared = await compare(
      claimant,
      pools.map(({ pool }) => pool),
      searchEveryS,
    );
    let claimed = 0;
    if (!compared.restored) for (const one of pools) claimed += await refill(claimant, one);
    await tellIdle(claimant);
    // A pool that the configuration no longer has gives back what is empty.
    const limitsOf = (name: string) => pools.find(({ pool }) => pool.name === name)?.limits ?? NONE_KEPT;
    const ended = await findEndedClaims(
      claimant,
      changeHeld(claimant, held => held),
    );
    const returned = await giveBack(claimant, limitsOf, { ended });
    const collected: string[] = [];
    for (const { pool, limits } of pools) {
      if (limits.graceS !== undefined && !compared.restored)
        collected.push(...(await collect(claimant, pool, limits.graceS)));
    }
    changeHeld(claimant, ({ asked: _, ...held }) => held);
    return { ...compared, claimed, returned, collected };
  });
}

const NONE_KEPT: Limits = { lowWater: 0, coolDownS: 0 };

async function refill(claimant: Claimant, { pool, limits: { lowWater } }: TendedPool): Promise<number> {
  if (lowWater === 0) return 0;
  for (let claimed = 0; ; claimed++) {
    if (freeIn(claimant, pool.name) >= lowWater) return claimed;
    try {
      await claimBlock(claimant, pool);
    } catch (thrown) {
      // What there is still serves, and STATUS reports it.
      if (thrown instanceof PoolExhausted) return claimed;
      throw thrown;
    }
  }
}

function freeIn(claimant: Claimant, pool: string): number {
  let free = 0;
  changeHeld(claimant, (held, leases) => {
    free = useOf(held, pool, leases).free;
    return held;
  });
  return free;
}

/** Of which blocks {@link giveBack} decides. */
export interface GiveBackOptions {
  /** Names of kept addresses for which there is no claim any longer. */
  readonly ended?: ReadonlySet<string>;
  /** Also give back what is kept for a time that is not over. */
  readonly endsKept?: boolean;
  /** All of them unless given. */
  isMeant?(block: HeldBlock): boolean;
}

/**
 * Gives back blocks that are empty; to be called while `claiming`.
 * @param limitsOf by the name of a pool
 * @returns their names
 * @throws CniError 11 when the store cannot be reached: the blocks are given back later
 */
export async function giveBack(
  claimant: Claimant,
  limitsOf: (pool: string) => Limits,
  { ended = new Set(), endsKept = false, isMeant = () => true }: GiveBackOptions = {},
): Promise<string[]> {
  const returning: HeldBlock[] = [];
  changeHeld(
    claimant,
    (held, leases) => {
      const blocks = noteEmpty(held, leases, claimant);
      const orphans = held.boot === claimant.boot ? held.orphans : [];
      const next: Held = { ...held, boot: claimant.boot, blocks, orphans };
      for (const block of blocks) {
        if (block.state !== 'held' || block.emptySince === undefined || !isMeant(block)) continue;
        const emptyS = claimant.clock() - block.emptySince;
        const others = next.blocks.filter(other => other.name !== block.name);
        if (block.keptFor !== undefined) {
          const isOver =
            endsKept || (block.keepS === undefined ? ended.has(block.name) : emptyS >= block.keepS);
          if (!isOver) continue;
        } else {
          const { coolDownS, lowWater } = limitsOf(block.pool);
          if (emptyS < coolDownS) continue;
          if (useOf({ ...next, blocks: others }, block.pool, leases).free < lowWater) continue;
        }
        const given: HeldBlock = { ...block, state: 'returning' };
        returning.push(given);
        next.blocks = [...others, given];
      }
      return next;
    },
    () => returning.length > 0,
  );
  for (const block of returning) await completeReturn(claimant, block);
  return returning.map(({ name }) => name);
}

/** A time of another boot says nothing: the block counts as empty from now on. */
function noteEmpty(held: Held, leases: LeaseStore, { boot, clock }: Claimant): HeldBlock[] {
  return held.blocks.map(({ emptySince, ...block }) => {
    if (isInUse(block, leases)) return block;
    return { ...block, emptySince: (held.boot === boot ? emptySince : undefined) ?? clock() };
  });
}
