// One node: the allocator itself, on a lease directory of its own.
import { existsSync, mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { giveBackAtOnce } from '../../plugins/cluster/slow.ts';
import type { ApiServer } from '../../src/delegate/api-server.ts';
import { listLeases } from '../../src/ipam/lease-files.ts';
import { renderIp } from '../../src/net/ip.ts';
import { obtain } from '../../src/pools/claim.ts';
import { clusterStore } from '../../src/pools/cluster-store.ts';
import { findPool } from '../../src/pools/find-pool.ts';
import { type HeldBlock, type ObjectStore, readHeld } from '../../src/pools/held.ts';
import { chooseAddresses, type Wish } from '../../src/pools/lease.ts';
import { type Claimant, inPlace, leasing } from '../../src/pools/place.ts';
import type { PoolSpec } from '../../src/pools/pool.ts';
import { type Limits, type Tended, tend } from '../../src/pools/tend.ts';

/** Of the machine's time, which a busy one needs more of. */
const DEADLINE_MS = 120_000;

/** A directory for files of nodes: in memory if possible, since thousands of synchronised writes are not what is tested. */
export function makeSimulatorDir(prefix: string): string {
  return mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), prefix));
}

/** A node of the simulation. */
export interface SimulatedNode {
  readonly name: string;
  readonly claimant: Claimant;
  /** @returns the addresses */
  add(id: string, ifname?: string, wish?: Wish): Promise<string[]>;
  del(id: string, ifname?: string): void;
  /** DEL of an attachment with a single address, which tells the store. */
  delAtOnce(id: string, ifname?: string): Promise<void>;
  /** Releases the leases of other containers than these. */
  collectGarbage(live: ReadonlySet<string>): void;
  tend(limits: Limits, searchEveryS?: number): Promise<Tended>;
  leases(): string[];
  blocks(): readonly HeldBlock[];
}

/** What a node needs to know. */
export interface NodeOptions {
  readonly name: string;
  readonly dir: string;
  readonly api: ApiServer;
  /** In place of that server: a directory. */
  readonly store?: ObjectStore;
  /** `podnet` unless given. */
  readonly network?: string;
  readonly pool: string;
  readonly spec?: PoolSpec;
  readonly random: () => number;
  readonly boot?: string;
  /** Name of the directory that its files are below: the node's unless given. */
  readonly disk?: string;
  /** Identity of the machine: one of its own unless given. */
  readonly machine?: string;
  readonly pause?: (ms: number) => Promise<void>;
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
    deadlineMs = DEADLINE_MS,
    network = 'podnet',
    boot = 'boot',
    machine = `machine-${name}`,
    pause,
  } = options;
  const { disk = name } = options;
  const dir = join(options.dir, network === 'podnet' ? disk : `${disk}-${network}`);
  mkdirSync(dir, { recursive: true });
  const claimant: Claimant = {
    network,
    dir,
    node: name,
    machine,
    boot,
    reclaim: false,
    store: options.store ?? clusterStore(api),
    clock,
    random,
    ...(pause && { pause }),
  };
  const load = () => findPool(claimant.store, pool, spec);
  return {
    name,
    claimant,
    async add(id, ifname = 'eth0', wish) {
      const reserve: Parameters<typeof obtain<string[]>>[2] = (store, held) => {
        const chosen = chooseAddresses(held, pool, store, wish);
        if (chosen === undefined) return undefined;
        store.reserve(chosen, { containerId: id, ifname });
        return chosen.map(({ ip }) => renderIp(ip));
      };
      return leasing(claimant, reserve) ?? (await obtain(claimant, load, reserve, deadlineMs, wish));
    },
    del(id, ifname = 'eth0') {
      inPlace(claimant, store => store.release(store.findLeasesOf({ containerId: id, ifname })));
    },
    async delAtOnce(id, ifname = 'eth0') {
      inPlace(claimant, store => store.release(store.findLeasesOf({ containerId: id, ifname })));
      await giveBackAtOnce(claimant, deadlineMs);
    },
    collectGarbage(live) {
      inPlace(claimant, store => {
        const isGone = (address: string) => !live.has(store.findOwner(address)?.containerId ?? '');
        store.release(listLeases(dir).filter(isGone));
      });
    },
    tend: async (limits, searchEveryS) =>
      tend(claimant, [{ pool: await load(), limits }], deadlineMs, searchEveryS),
    leases: () => listLeases(dir),
    blocks: () => readHeld(dir)?.blocks ?? [],
  };
}
