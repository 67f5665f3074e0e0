// Does this node hold what the store says, and neither too few blocks nor too many?
//
// The daemon asks this from time to time, and once addresses become few. Without a daemon, GC does.
import type { LeaseStore } from '../ipam/lease-store.ts';
import { blockSpecOf, heldFrom, isOwn, kindOf } from './block-object.ts';
import { claimBlock, completeReturn, PoolExhausted, settle } from './claim.ts';
import { collect } from './collect.ts';
import type { Held, HeldBlock } from './held.ts';
import { findEndedClaims, tellIdle } from './keep.ts';
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

/** A pool of the network, and how much of it this node keeps. */
export interface TendedPool {
  readonly pool: Pool;
  readonly limits: Limits;
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
 * Seconds between two looks for blocks that this node holds without knowing it. A server searches the blocks of all nodes for that, so it
 * is asked seldom, and at once when a request was not answered.
 */
const SEARCH_EVERY_S = 6 * 3600;
/** More blocks than these are listed, not read one by one: a list has those of all nodes. */
const MOST_READ_SINGLY = 1024;
/** Requests at a time. */
const AT_ONCE = 16;

/**
 * Compares this node's blocks with the store, claims one if addresses become few, and gives empty ones back.
 * @throws CniError 11 when the store cannot be reached
 */
export function tend(
  claimant: Claimant,
  pools: readonly TendedPool[],
  deadlineMs: number,
  searchEveryS = SEARCH_EVERY_S,
): Promise<Tended> {
  return claiming(claimant, performance.now() + deadlineMs, async () => {
    await settle(claimant);
    const compared = await compare(claimant, searchEveryS);
    let claimed = 0;
    for (const one of pools) claimed += await refill(claimant, one);
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
      if (limits.graceS !== undefined) collected.push(...(await collect(claimant, pool, limits.graceS)));
    }
    changeHeld(claimant, ({ asked: _, ...held }) => ({ ...held, checkedAt: claimant.clock() }));
    return { ...compared, claimed, returned, collected };
  });
}

const NONE_KEPT: Limits = { lowWater: 0, coolDownS: 0 };

async function compare(claimant: Claimant, searchEveryS: number): Promise<Pick<Tended, 'adopted' | 'lost'>> {
  const { network, boot, clock } = claimant;
  const before = changeHeld(claimant, held => held);
  const { node, searchedAt = Number.NEGATIVE_INFINITY } = before;
  const isDue = before.boot !== boot || clock() - searchedAt >= searchEveryS;
  const searches = isDue || before.blocks.length > MOST_READ_SINGLY;
  const listed: StoredObject[] = [];
  for (const [kind, object] of await (searches ? search(claimant, node) : readEach(claimant, before))) {
    if (!isOwn(object, { node, network })) continue;
    listed.push((await reclaimed(claimant, kind, object)) ?? object);
  }
  const byName = new Map(listed.map(object => [object.name, object]));
  const adopted: string[] = [];
  const lost: string[] = [];
  changeHeld(claimant, (held, leases) => {
    const known = held.blocks.flatMap((block): HeldBlock[] => {
      const object = byName.get(block.name);
      byName.delete(block.name);
      // Even if it is another claim of ours: nothing of it was given to others since.
      if (object) return [{ ...block, state: 'held', uid: object.uid, ...idleOf(block, object) }];
      // One that is idle was there to be taken over.
      if (block.state !== 'lost' && !block.idle) lost.push(block.name);
      return isInUse(block, leases) ? [{ ...block, state: 'lost' }] : [];
    });
    const others = [...byName.values()].flatMap(object => heldFrom(object) ?? []);
    adopted.push(...others.map(({ name }) => name));
    const blocks = [...known, ...others];
    return searches ? { ...held, searchedAt: clock(), blocks } : { ...held, blocks };
  });
  return { adopted, lost };
}

async function search({ store }: Claimant, node: string): Promise<[Kind, StoredObject][]> {
  const found: [Kind, StoredObject][] = [];
  for (const kind of KINDS)
    for (const object of await store.list(kind, { [NODE_LABEL]: labelOf(node) })) found.push([kind, object]);
  return found;
}

async function readEach({ store }: Claimant, { blocks }: Held): Promise<[Kind, StoredObject][]> {
  const found: [Kind, StoredObject][] = [];
  for (let i = 0; i < blocks.length; i += AT_ONCE) {
    const read = blocks.slice(i, i + AT_ONCE).map(async block => {
      const kind = kindOf(block);
      return [kind, await store.find(kind, block.name)] as const;
    });
    for (const [kind, object] of await Promise.all(read)) if (object) found.push([kind, object]);
  }
  return found;
}

/** What is noted here counts, and what the store does not know yet will be told. */
function idleOf({ idle }: HeldBlock, object: StoredObject): Pick<HeldBlock, 'idle'> {
  const isTold = blockSpecOf(object)?.idle === true;
  return isTold ? { idle: 'told' } : idle ? { idle: 'noted' } : {};
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
  { ended = new Set(), isMeant = () => true }: GiveBackOptions = {},
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
          const isOver = block.keepS === undefined ? ended.has(block.name) : emptyS >= block.keepS;
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
