// Does this node hold what the store says, and neither too few blocks nor too many, nor those of nodes that are gone?
//
// The daemon asks this from time to time, and once addresses become few. Without a daemon, GC does. Any node may find a block of one that
// is gone, and frees it after a time of grace by its own clock, in the very version that it marked.

import { defined } from '../cni/json.ts';
import type { LeaseStore } from '../ipam/lease-store.ts';
import { claimBlock, completeBegun, completeReturn, PoolExhausted } from './claim.ts';
import { compare } from './compare.ts';
import {
  BLOCK_KINDS,
  blockSpecOf,
  type Held,
  type HeldBlock,
  isOwn,
  labelOf,
  type Orphan,
  POOL_LABEL,
} from './held.ts';
import { adoptKept, findEndedClaims, tellIdle } from './keep.ts';
import { isInUse, useOf } from './lease.ts';
import { type Claimant, type Compared, changeHeld, claiming, heldIn, lookAt, ownerIn } from './place.ts';
import { countUsable, type Pool } from './pool.ts';

/** So many of all nodes look at the whole pool in each interval, on average: one alone might be the one that is gone. */
const LOOKERS = 5;
/** Until a node has counted the others. */
const ASSUMED_NODES = 10;
/** Nodes about which one look asks. */
const MOST_ASKED = 100;
/** Objects that are marked in one look: a node can write any number, with any names of nodes, and each costs requests. */
const MOST_MARKED = 1_024;

type Owner = Pick<Orphan, 'node' | 'machine'>;

/**
 * Marks blocks of nodes that are gone, and deletes those that have borne the mark for the time of grace.
 * @returns the names of those that were deleted
 */
export async function collect(claimant: Claimant, pool: Pool, graceS: number): Promise<string[]> {
  const held = heldIn(claimant);
  if (claimant.random() < LOOKERS / Math.max(held.nodes ?? ASSUMED_NODES, 1)) await look(claimant, pool);
  return free(claimant, graceS);
}

async function look(claimant: Claimant, pool: Pool): Promise<void> {
  const { store } = claimant;
  const labels = { [POOL_LABEL]: labelOf(pool.name) };
  // Names alone: objects can be large.
  const byOwner = new Map<string, { owner: Owner; names: [kind: Orphan['kind'], name: string][] }>();
  const self = ownerIn(claimant);
  let claimed = 0;
  for (const kind of BLOCK_KINDS)
    for await (const page of store.pages(kind, labels)) {
      claimed += page.length;
      for (const object of page) {
        const spec = blockSpecOf(object);
        if (spec === undefined || isOwn(object, { ...self, network: spec.network })) continue;
        // Another machine of that name is another node.
        const { node, machine } = spec;
        const key = JSON.stringify([node, machine]);
        const one = byOwner.get(key) ?? { owner: { node, ...defined({ machine }) }, names: [] };
        byOwner.set(key, one);
        if (one.names.length < MOST_MARKED) one.names.push([kind, object.name]);
      }
    }
  const owners = [...byOwner.values()];
  const found: Orphan[] = [];
  // Some of them, at random.
  const keyed = owners.map(one => ({ one, key: claimant.random() })).sort((a, b) => a.key - b.key);
  for (const { one } of keyed.slice(0, MOST_ASKED)) {
    const { owner, names } = one;
    if (found.length >= MOST_MARKED) break;
    if ((await store.hasNode(owner.node, owner.machine)) !== false) continue;
    for (const [kind, name] of names.slice(0, MOST_MARKED - found.length))
      found.push(...(await mark(claimant, owner, kind, name)));
  }
  changeHeld(claimant, ({ orphans = [], ...rest }) => {
    const isKnown = (one: Orphan) =>
      orphans.some(({ uid, version }) => uid === one.uid && version === one.version);
    const fresh = found.filter(one => !isKnown(one));
    const kept = orphans.filter(({ uid }) => !fresh.some(one => one.uid === uid));
    const nodes = owners.length + 1;
    const pools = { ...rest.pools, [pool.name]: { blocks: countUsable(pool), claimed, nodes } };
    return { ...rest, nodes, pools, orphans: [...kept, ...fresh] };
  });
}

/** The object with the mark; none if it has another owner. */
async function mark(
  { store, clock }: Claimant,
  owner: Owner,
  kind: Orphan['kind'],
  name: string,
): Promise<Orphan[]> {
  const object = await store.find(kind, name);
  const spec = object && blockSpecOf(object);
  if (object === undefined || spec?.node !== owner.node || spec.machine !== owner.machine) return [];
  const marked = spec.orphaned
    ? object
    : await store.replace(kind, { ...object, spec: { ...object.spec, orphaned: true } });
  if (marked === undefined) return [];
  return [{ kind, name, uid: marked.uid, version: marked.version, ...owner, since: clock() }];
}

async function free(claimant: Claimant, graceS: number): Promise<string[]> {
  const { store, clock } = claimant;
  const { orphans = [] } = heldIn(claimant);
  const freed: string[] = [];
  for (const { kind, name, uid, version, node, machine, since } of orphans) {
    if (clock() - since < graceS) continue;
    const isGone = (await store.hasNode(node, machine)) === false;
    if (isGone) {
      // What is kept for a claim or a name outlasts its node.
      const isKept = kind === 'addresses' && (await adoptKept(claimant, { name, version }));
      if (!isKept && (await store.remove(kind, { name, uid, version }))) freed.push(name);
    }
    changeHeld(claimant, held => ({ ...held, orphans: held.orphans?.filter(one => one.uid !== uid) }));
  }
  return freed;
}

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
interface TendedPool {
  readonly pool: Pool;
  readonly limits: Limits;
}

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
    await completeBegun(claimant);
    const all = pools.map(({ pool }) => pool);
    const compared = await compare(claimant, all, searchEveryS);
    let claimed = 0;
    if (!compared.restored) for (const one of pools) claimed += await refill(claimant, one);
    await tellIdle(claimant);
    // A pool that the configuration no longer has gives back what is empty.
    const limitsOf = (name: string) => pools.find(({ pool }) => pool.name === name)?.limits ?? NONE_KEPT;
    const ended = await findEndedClaims(claimant, heldIn(claimant));
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
    const { free, used } = lookAt(claimant, (held, leases) => useOf(held, pool.name, leases));
    if (used === 0 || free >= lowWater) return claimed;
    try {
      await claimBlock(claimant, pool);
    } catch (thrown) {
      // What there is still serves, and STATUS reports it.
      if (thrown instanceof PoolExhausted) return claimed;
      throw thrown;
    }
  }
}

interface GiveBackOptions {
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
  { ended = new Set(), endsKept = false, isMeant = () => true }: GiveBackOptions,
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
          // Without an attachment, as of a network that was removed, the node needs none: other nodes may find the pool full.
          const { used } = useOf(next, block.pool, leases);
          if (used > 0 && useOf({ ...next, blocks: others }, block.pool, leases).free < lowWater) continue;
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
