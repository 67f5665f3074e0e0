// What do tools ask of the blocks of all nodes, and of those that this node gives back?

import type { PoolInventory } from '../../src/cni/plugin-about.ts';
import { completeBegun } from '../../src/pools/claim.ts';
import { lookAtPool } from '../../src/pools/find-pool.ts';
import {
  blockSpecOf,
  kindOf,
  labelOf,
  listAll,
  type ObjectStore,
  POOL_LABEL,
  readHeld,
} from '../../src/pools/held.ts';
import { type Claimant, claiming } from '../../src/pools/place.ts';
import { countUsable } from '../../src/pools/pool.ts';
import { giveBack } from '../../src/pools/tend.ts';
import { claimantOf, DEFAULT_TIMEOUT_S, openStore } from './claimant.ts';
import type { ClusterConf } from './config.ts';
import { poolsOf } from './plan.ts';

/**
 * Lists blocks and addresses of each pool.
 * @throws CniError 11 when the store cannot be reached, 7 when there is no such pool
 */
export async function takeInventory(conf: ClusterConf): Promise<PoolInventory[]> {
  const { kubeconfig, dataDir, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const store = await openStore(kubeconfig, timeout * 1000, dataDir);
  const all: PoolInventory[] = [];
  for (const { name, spec } of poolsOf(conf))
    all.push(await inventoryOf(store, await lookAtPool(store, name, spec)));
  return all;
}

async function inventoryOf(
  store: ObjectStore,
  pool: Awaited<ReturnType<typeof lookAtPool>>,
): Promise<PoolInventory> {
  const listed = await listAll(store, kindOf({ size: pool.blockSize }), { [POOL_LABEL]: labelOf(pool.name) });
  const nodes = new Map<string, PoolInventory['nodes'][number]>();
  for (const object of listed) {
    const { node = '', orphaned, keptFor } = blockSpecOf(object) ?? {};
    const before = nodes.get(node) ?? { node, blocks: 0, orphaned: 0, kept: 0 };
    nodes.set(node, {
      node,
      blocks: before.blocks + 1,
      orphaned: before.orphaned + (orphaned ? 1 : 0),
      kept: before.kept + (keptFor === undefined ? 0 : 1),
    });
  }
  return {
    ...{ pool: pool.name, blockSize: pool.blockSize, blocks: countUsable(pool), claimed: listed.length },
    nodes: [...nodes.values()].sort((a, b) => (a.node < b.node ? -1 : 1)),
  };
}

const DEADLINE_MS = 30_000;

/**
 * Gives back every block without a lease: nothing else frees the blocks of a node that the cluster goes on to have.
 * @returns their names
 * @throws CniError 11 when the store cannot be reached
 */
export async function giveBackAll(conf: ClusterConf, network: string, dryRun: boolean): Promise<string[]> {
  const claimant = await claimantOf({ conf, network, environment: process.env }, conf);
  const names = (readHeld(claimant.dir)?.blocks ?? []).map(({ name }) => name);
  if (names.length === 0 || dryRun) return names;
  const left = await giveBackAllOf(claimant, DEADLINE_MS);
  if (left.length)
    throw new Error(
      `Cannot give back ${left.join(', ')} of network "${network}": addresses of them are leased`,
    );
  return names;
}

/**
 * Gives back what it can.
 * @returns names of blocks with leases
 * @throws CniError 11 when the store cannot be reached
 */
export function giveBackAllOf(claimant: Claimant, deadlineMs: number): Promise<string[]> {
  return claiming(claimant, performance.now() + deadlineMs, async () => {
    await completeBegun(claimant);
    // What is kept for a name or a claim is kept by a node, and this one goes.
    await giveBack(claimant, () => ({ lowWater: 0, coolDownS: 0 }), { endsKept: true });
    return (readHeld(claimant.dir)?.blocks ?? []).map(({ name }) => name);
  });
}
