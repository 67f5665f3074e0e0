// Does this node hold what the store says, and neither too few blocks nor too many?
//
// The daemon asks this from time to time, and once addresses become few. Without a daemon, GC does.
import type { LeaseStore } from '../ipam/lease-store.ts';
import { blockSpecOf, heldFrom, isOwn } from './block-object.ts';
import { claimBlock, completeReturn, PoolExhausted, settle } from './claim.ts';
import { collect } from './collect.ts';
import type { Held, HeldBlock } from './held.ts';
import { labelOf } from './label.ts';
import { isInUse, useOf } from './lease.ts';
import { type Kind, NODE_LABEL, type StoredObject } from './objects.ts';
import { type Claimant, changeHeld, claiming } from './place.ts';
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

/** What was found and done. */
export interface Tended {
  /** Blocks of this node that it did not know: a request was done after it had been given up. */
  readonly adopted: readonly string[];
  /** Blocks that the store gave to others, or forgot. */
  readonly lost: readonly string[];
  readonly claimed: number;
  readonly returned: readonly string[];
  /** Blocks of nodes that have vanished, which are now free. */
  readonly collected: readonly string[];
}

const KINDS: readonly Kind[] = ['blocks', 'addresses'];

/**
 * Compares this node's blocks with the store, claims one if addresses become few, and gives empty ones back.
 * @throws CniError 11 when the store cannot be reached
 */
export function tend(
  claimant: Claimant,
  findPool: () => Promise<Pool>,
  limits: Limits,
  deadlineMs: number,
): Promise<Tended> {
  return claiming(claimant, performance.now() + deadlineMs, async () => {
    await settle(claimant);
    const compared = await compare(claimant);
    const claimed = await refill(claimant, findPool, limits);
    const returned = await giveBack(claimant, limits);
    const collected =
      limits.graceS === undefined ? [] : await collect(claimant, (await findPool()).name, limits.graceS);
    changeHeld(claimant, ({ asked: _, ...held }) => ({ ...held, checkedAt: claimant.clock() }));
    return { ...compared, claimed, returned, collected };
  });
}

async function compare(claimant: Claimant): Promise<Pick<Tended, 'adopted' | 'lost'>> {
  const { store, network } = claimant;
  const { node } = changeHeld(claimant, held => held);
  const listed: StoredObject[] = [];
  for (const kind of KINDS) {
    for (const object of await store.list(kind, { [NODE_LABEL]: labelOf(node) })) {
      if (!isOwn(object, { node, network })) continue;
      listed.push((await reclaimed(claimant, kind, object)) ?? object);
    }
  }
  const byName = new Map(listed.map(object => [object.name, object]));
  const adopted: string[] = [];
  const lost: string[] = [];
  changeHeld(claimant, (held, leases) => {
    const known = held.blocks.flatMap((block): HeldBlock[] => {
      const object = byName.get(block.name);
      byName.delete(block.name);
      // Even if it is another claim of ours: nothing of it was given to others since.
      if (object) return [{ ...block, state: 'held', uid: object.uid }];
      if (block.state !== 'lost') lost.push(block.name);
      return isInUse(block, leases) ? [{ ...block, state: 'lost' }] : [];
    });
    const others = [...byName.values()].flatMap(object => heldFrom(object) ?? []);
    adopted.push(...others.map(({ name }) => name));
    return { ...held, blocks: [...known, ...others] };
  });
  return { adopted, lost };
}

/** Another node took this one for vanished: it has not, and says so, which changes the version that the other would delete. */
async function reclaimed(
  { store }: Claimant,
  kind: Kind,
  object: StoredObject,
): Promise<StoredObject | undefined> {
  if (!blockSpecOf(object)?.orphaned) return undefined;
  const { orphaned: _, ...spec } = object.spec;
  return store.replace(kind, { ...object, spec });
}

async function refill(
  claimant: Claimant,
  findPool: () => Promise<Pool>,
  { lowWater }: Limits,
): Promise<number> {
  if (lowWater === 0) return 0;
  const pool = await findPool();
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

/**
 * Gives back blocks that are empty; to be called while `claiming`.
 * @returns their names
 * @throws CniError 11 when the store cannot be reached: the blocks are given back later
 */
export async function giveBack(
  claimant: Claimant,
  limits: Limits,
  isMeant: (block: HeldBlock) => boolean = () => true,
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
        if (claimant.clock() - block.emptySince < limits.coolDownS) continue;
        const others = next.blocks.filter(other => other.name !== block.name);
        const { free } = useOf({ ...next, blocks: others }, block.pool, leases);
        if (free < limits.lowWater) continue;
        const given: HeldBlock = { ...block, state: 'returning' };
        returning.push(given);
        next.blocks = [...others, given];
      }
      return next;
    },
    true,
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
