// What do all nodes hold of the pools of a configuration?
import type { PoolInventory } from '../../src/cni/plugin-about.ts';
import { findPool } from '../../src/pools/find-pool.ts';
import { blockSpecOf, kindOf, labelOf, listAll, type ObjectStore, POOL_LABEL } from '../../src/pools/held.ts';
import { countUsable } from '../../src/pools/pool.ts';
import { poolsOf } from './choose-pool.ts';
import { DEFAULT_TIMEOUT_S, openStore } from './claimant.ts';
import type { ClusterConf } from './config.ts';

/**
 * Lists blocks and addresses of each pool.
 * @throws CniError 11 when the store cannot be reached, 7 when there is no such pool
 */
export async function takeInventory(conf: ClusterConf): Promise<PoolInventory[]> {
  const { kubeconfig, dataDir, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const store = await openStore(kubeconfig, timeout * 1000, dataDir);
  const all: PoolInventory[] = [];
  for (const { name, spec } of poolsOf(conf))
    all.push(await inventoryOf(store, await findPool(store, name, spec)));
  return all;
}

async function inventoryOf(
  store: ObjectStore,
  pool: Awaited<ReturnType<typeof findPool>>,
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
