// What needs the store of the pool? Loaded only by calls that do.
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { LeaseStore } from '../../src/ipam/lease-store.ts';
import { obtain } from '../../src/pools/claim.ts';
import { findPool, lookAtPool } from '../../src/pools/find-pool.ts';
import {
  type Held,
  type HeldBlock,
  isOwn,
  kindOf,
  labelOf,
  listAll,
  POOL_LABEL,
  readHeld,
} from '../../src/pools/held.ts';
import { tellIdle } from '../../src/pools/keep.ts';
import type { Wish } from '../../src/pools/lease.ts';
import { type Claimant, claiming, isCompared } from '../../src/pools/place.ts';
import { anyFree } from '../../src/pools/pool.ts';
import { giveBack, type Limits, type Tended, tend } from '../../src/pools/tend.ts';
import type { ConfiguredPool } from './plan.ts';

/** Reserves addresses after a block has been claimed. */
export function obtainFrom<T>(
  claimant: Claimant,
  { name, spec }: ConfiguredPool,
  reserve: (store: LeaseStore, held: Held | undefined) => T | undefined,
  deadlineMs: number,
  wish: Wish | undefined,
): Promise<T> {
  return obtain(claimant, () => findPool(claimant.store, name, spec), reserve, deadlineMs, wish);
}

/**
 * Compares this node's blocks with the store, and keeps their number within limits.
 * @throws what is wrong with one of the pools, after the others have been looked after
 */
export async function tendTo(
  claimant: Claimant,
  configured: readonly ConfiguredPool[],
  limitsOf: (blockSize: number) => Limits,
  deadlineMs: number,
): Promise<Tended> {
  const found = await Promise.allSettled(
    configured.map(({ name, spec }) => findPool(claimant.store, name, spec)),
  );
  const pools = found.flatMap(one => (one.status === 'fulfilled' ? [one.value] : []));
  const wrong = found.find(one => one.status === 'rejected');
  // Without any, the store itself may be away.
  if (wrong && pools.length === 0) throw wrong.reason;
  const tended = pools.map(pool => ({ pool, limits: limitsOf(pool.blockSize) }));
  const done = await tend(claimant, tended, deadlineMs);
  if (wrong) throw wrong.reason;
  return done;
}

/** Gives back the single addresses that no attachment has, and says which of those that are kept others may take over. */
export function giveBackAtOnce(claimant: Claimant, deadlineMs: number): Promise<unknown> {
  const giveUpAt = performance.now() + deadlineMs;
  const isMeant = ({ size, keptFor }: HeldBlock) => size === 1 && keptFor === undefined;
  return claiming(claimant, giveUpAt, async () => {
    await giveBack(claimant, () => ({ lowWater: 0, coolDownS: 0 }), { isMeant });
    await tellIdle(claimant);
  });
}

/** @throws CniError when the next ADD would not get a block */
export async function tryToFind(claimant: Claimant, { name, spec }: ConfiguredPool): Promise<void> {
  const { store } = claimant;
  const pool = await lookAtPool(store, name, spec);
  const taken = await listAll(store, kindOf({ size: pool.blockSize }), { [POOL_LABEL]: labelOf(name) });
  if (anyFree(pool, new Set(taken.map(block => block.name)), claimant.random)) return;
  // Nothing is leased from its own since the boot.
  const held = readHeld(claimant.dir);
  const owner = held && !isCompared(claimant, held) && { node: held.node, network: claimant.network };
  if (owner && taken.some(block => isOwn(block, owner))) return;
  throw new CniError(
    ErrorCode.unavailable,
    `Cannot allocate from pool "${name}": this node has no free address, and all blocks are taken`,
  );
}
