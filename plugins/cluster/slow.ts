// What needs the store of the pool? Loaded only by calls that do.
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { LeaseStore } from '../../src/ipam/lease-store.ts';
import { kindOf } from '../../src/pools/block-object.ts';
import { anyFree } from '../../src/pools/choose.ts';
import { obtain } from '../../src/pools/claim.ts';
import { findPool } from '../../src/pools/find-pool.ts';
import type { Held } from '../../src/pools/held.ts';
import { labelOf } from '../../src/pools/label.ts';
import { POOL_LABEL } from '../../src/pools/objects.ts';
import { type Claimant, claiming } from '../../src/pools/place.ts';
import type { Pool, PoolSpec } from '../../src/pools/pool.ts';
import { giveBack, type Limits, type Tended, tend } from '../../src/pools/tend.ts';

/** Reserves addresses after a block has been claimed. */
export function obtainFrom<T>(
  claimant: Claimant,
  pool: string,
  spec: PoolSpec | undefined,
  reserve: (store: LeaseStore, held: Held | undefined) => T | undefined,
  deadlineMs: number,
): Promise<T> {
  return obtain(claimant, () => findPool(claimant.store, pool, spec), reserve, deadlineMs);
}

/** Compares this node's blocks with the store, and keeps their number within limits. */
export async function tendTo(
  claimant: Claimant,
  name: string,
  spec: PoolSpec | undefined,
  limitsOf: (blockSize: number) => Limits,
  deadlineMs: number,
): Promise<Tended> {
  const pool = await findPool(claimant.store, name, spec);
  return tend(claimant, async () => pool, limitsOf(pool.blockSize), deadlineMs);
}

/** Gives back the single addresses that no attachment has. */
export function giveBackAtOnce(claimant: Claimant, deadlineMs: number): Promise<unknown> {
  const giveUpAt = performance.now() + deadlineMs;
  return claiming(claimant, giveUpAt, () =>
    giveBack(claimant, { lowWater: 0, coolDownS: 0 }, ({ size }) => size === 1),
  );
}

/** @throws CniError when the next ADD would not get a block */
export async function tryToFind(claimant: Claimant, name: string, spec: PoolSpec | undefined): Promise<Pool> {
  const { store } = claimant;
  const pool = await findPool(store, name, spec);
  const taken = await store.list(kindOf({ size: pool.blockSize }), { [POOL_LABEL]: labelOf(name) });
  if (anyFree(pool, new Set(taken.map(block => block.name)), claimant.random)) return pool;
  throw new CniError(
    ErrorCode.unavailable,
    `Cannot allocate from pool "${name}": this node has no free address, and all blocks are taken`,
  );
}
