// One node: the allocator itself, on a lease directory of its own.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ApiServer } from '../../src/delegate/api-server.ts';
import { listLeases } from '../../src/ipam/lease-files.ts';
import { renderIp } from '../../src/net/ip.ts';
import { obtain } from '../../src/pools/claim.ts';
import { clusterStore } from '../../src/pools/cluster-store.ts';
import { findPool } from '../../src/pools/find-pool.ts';
import { type HeldBlock, readHeld } from '../../src/pools/held.ts';
import { chooseAddresses } from '../../src/pools/lease.ts';
import { type Claimant, inPlace } from '../../src/pools/place.ts';
import type { PoolSpec } from '../../src/pools/pool.ts';
import { type Limits, type Tended, tend } from '../../src/pools/tend.ts';

/** A node of the simulation. */
export interface SimulatedNode {
  readonly name: string;
  readonly claimant: Claimant;
  /** @returns the addresses */
  add(id: string, ifname?: string): Promise<string[]>;
  del(id: string, ifname?: string): void;
  tend(limits: Limits): Promise<Tended>;
  leases(): string[];
  blocks(): readonly HeldBlock[];
}

/** What a node needs to know. */
export interface NodeOptions {
  readonly name: string;
  readonly dir: string;
  readonly api: ApiServer;
  readonly pool: string;
  readonly spec?: PoolSpec;
  readonly random: () => number;
  /** Seconds since the boot. */
  readonly clock?: () => number;
  readonly deadlineMs?: number;
}

/** A node with an empty lease directory, or the one that it left. */
export function simulatedNode(options: NodeOptions): SimulatedNode {
  const {
    name,
    api,
    pool,
    spec,
    random,
    clock = () => performance.now() / 1000,
    deadlineMs = 10_000,
  } = options;
  const dir = join(options.dir, name);
  mkdirSync(dir, { recursive: true });
  const claimant: Claimant = {
    network: 'podnet',
    dir,
    node: name,
    boot: 'boot',
    reclaim: false,
    store: clusterStore(api),
    clock,
    random,
  };
  const load = () => findPool(claimant.store, pool, spec);
  return {
    name,
    claimant,
    async add(id, ifname = 'eth0') {
      const reserve: Parameters<typeof obtain<string[]>>[2] = (store, held) => {
        const chosen = chooseAddresses(held, pool, store);
        if (chosen === undefined) return undefined;
        store.reserve(chosen, { containerId: id, ifname });
        return chosen.map(({ ip }) => renderIp(ip));
      };
      return inPlace(claimant, reserve) ?? (await obtain(claimant, load, reserve, deadlineMs));
    },
    del(id, ifname = 'eth0') {
      inPlace(claimant, store => store.release(store.findLeasesOf({ containerId: id, ifname })));
    },
    tend: limits => tend(claimant, load, limits, deadlineMs),
    leases: () => listLeases(dir),
    blocks: () => readHeld(dir)?.blocks ?? [],
  };
}
