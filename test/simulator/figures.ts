// How long does an ADD take over a cluster, and what does it ask of the API?
import { rmSync } from 'node:fs';
import type { ApiServer } from '../../src/delegate/api-server.ts';
import type { PoolSpec } from '../../src/pools/pool.ts';
import { Random } from '../storm/random.ts';
import { makeSimulatorDir, type SimulatedNode, simulatedNode } from './node.ts';

/** A load: so many nodes, pods and networks of each, all at once. */
export interface Load {
  readonly nodes: number;
  /** In all. */
  readonly pods: number;
  readonly networks: number;
  readonly pool: string;
  readonly spec: PoolSpec;
  /** Pods that one node starts at a time. */
  readonly atOnce: number;
}

/** A counted way to the API. */
export interface Counted {
  readonly server: ApiServer;
  readonly counts: { requests: number; conflicts: number };
}

/** What a load showed. */
export interface Figures {
  readonly adds: number;
  readonly seconds: number;
  readonly medianMs: number;
  readonly p99Ms: number;
  readonly requestsPerAdd: number;
  readonly conflicts: number;
  /** Share of the addresses in claimed blocks that are leased. */
  readonly efficiency: number;
  readonly failed: number;
}

/** Counts what passes. A status that the caller expects, other than of a missing object, is a conflict. */
export function counted(server: ApiServer): Counted {
  const counts = { requests: 0, conflicts: 0 };
  return {
    counts,
    server: {
      listen: server.listen,
      async ask(method, path, body, expected) {
        counts.requests++;
        const reply = await server.ask(method, path, body, expected);
        if (reply === undefined && method !== 'GET') counts.conflicts++;
        return reply;
      },
    },
  };
}

/** Runs a load on fresh nodes. @param check called with the nodes at the end */
export async function measureLoad(
  load: Load,
  { server, counts }: Counted,
  seed: number,
  check: (nodes: readonly SimulatedNode[]) => void | Promise<void> = () => {},
): Promise<Figures> {
  const dir = makeSimulatorDir('cat-sim-');
  const draws = new Random(seed);
  const { pool, spec } = load;
  const nodes = Array.from({ length: load.nodes }, (_, i) =>
    simulatedNode({
      name: `n${i}`,
      dir,
      api: server,
      pool,
      spec,
      random: () => draws.next(),
      deadlineMs: 240_000,
    }),
  );
  const times: number[] = [];
  let failed = 0;
  const pods = Array.from({ length: load.pods }, (_, i) => `pod-${i}`);
  const startPod = async (node: SimulatedNode, id: string): Promise<void> => {
    for (let i = 0; i < load.networks; i++) {
      const begun = performance.now();
      try {
        await node.add(id, `net${i}`);
        times.push(performance.now() - begun);
      } catch {
        failed++;
      }
    }
  };
  try {
    const begun = performance.now();
    await Promise.all(
      nodes.flatMap((node, n) => {
        const own = pods.filter((_, i) => i % nodes.length === n).values();
        const work = async (): Promise<void> => {
          for (const id of own) await startPod(node, id);
        };
        return Array.from({ length: load.atOnce }, work);
      }),
    );
    const seconds = (performance.now() - begun) / 1000;
    await check(nodes);
    const ascending = times.sort((a, b) => a - b);
    const at = (share: number) =>
      ascending[Math.min(Math.floor(ascending.length * share), ascending.length - 1)] ?? 0;
    const sizes = nodes.flatMap(node => node.blocks()).reduce((sum, { size }) => sum + size, 0);
    const families = spec.subnets.some(({ ipv4, ipv6 }) => ipv4 && ipv6) ? 2 : 1;
    const leases = nodes.reduce((sum, node) => sum + node.leases().length, 0) / families;
    return {
      adds: times.length,
      seconds,
      medianMs: at(0.5),
      p99Ms: at(0.99),
      requestsPerAdd: counts.requests / Math.max(times.length, 1),
      conflicts: counts.conflicts,
      efficiency: leases / sizes,
      failed,
    };
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
