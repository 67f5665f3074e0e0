// How long do the verbs of a whole chain take: ours cold and warm, and the reference's as its own runtime runs it?
import { readdirSync, readFileSync } from 'node:fs';
import { type Contestant, renewed, type Samples, settle, takeTurns, timed } from './measure.ts';
import { type Peer, portOf, single, withSides } from './sides.ts';

/** The verbs of a chain that are measured. */
export const CHAIN_VERBS = ['ADD', 'CHECK', 'DEL'] as const;
export type ChainVerb = (typeof CHAIN_VERBS)[number];

/** Target ratios to the reference, of one chain at a time. */
export const CHAIN_TARGETS = {
  cold: { ADD: 0.6, CHECK: 0.9, DEL: 0.35 },
  warm: { ADD: 0.2, CHECK: 0.4, DEL: 0.2 },
} as const;

/** Longer than an idle worker is kept. */
const IDLE_MS = 35_000;

/** ADD, CHECK and DEL of bridge with host-local, portmap, bandwidth and tuning, one at a time, sides taking turns. */
export async function measureChain(peer: Peer, rounds: number): Promise<Samples> {
  return await withSides(['reference', 'ours', 'warm'], peer, async sides => {
    const contestants = await Promise.all(sides.map(single));
    for (const one of contestants) if (one.name === 'warm') await settle(one);
    return await takeTurns(contestants, rounds);
  });
}

/** Warm ADD and DEL of one more container, with few attachments and with many on the node; and the daemon's memory. */
export async function measureWarmGrowth(
  sizes: readonly [number, number],
  rounds: number,
): Promise<{ samples: Samples; memoryBytes: number }> {
  const peer = { libcni: undefined };
  return await withSides(['warm', 'warm'], peer, async sides => {
    const memory: number[] = [];
    const contestants: Contestant[] = [];
    for (const [n, runner] of sides.entries()) {
      const size = sizes[n] ?? 0;
      for (let i = 0; i < size; i++) await runner.run('add', await runner.lab.container(), portOf(i));
      const container = await runner.lab.container();
      contestants.push({
        name: `${size}`,
        async round(i) {
          const one = renewed(container, i);
          const before = processorMs(runner.daemonPid);
          const ADD = await timed(() => runner.run('add', one, portOf(30_000 + i)));
          const between = processorMs(runner.daemonPid);
          const DEL = await timed(() => runner.run('del', one));
          const after = processorMs(runner.daemonPid);
          const [adding, deleting] = [between - before, after - between];
          return {
            ADD,
            'ADD, processor time of the daemon': adding,
            DEL,
            'DEL, processor time of the daemon': deleting,
          };
        },
      });
    }
    for (const one of contestants) await settle(one);
    const samples = await takeTurns(contestants, rounds);
    // By then idle workers have ended, and the last one has freed what calls had left.
    await Bun.sleep(IDLE_MS);
    for (const { daemonPid } of sides) if (daemonPid) memory.push(proportionalBytes(daemonPid));
    return { samples, memoryBytes: Math.max(...memory) };
  });
}

/** Processor time of a process and its children, in all their threads (proc(5), schedstat). */
function processorMs(pid: number | undefined): number {
  if (pid === undefined) return 0;
  const own = readdirSync(`/proc/${pid}/task`).reduce((sum, task) => {
    const [ran = '0'] = readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ');
    return sum + Number(ran) / 1e6;
  }, 0);
  return childrenOf(pid).reduce((sum, child) => sum + processorMs(child), own);
}

function childrenOf(pid: number): number[] {
  const { stdout } = Bun.spawnSync(['pgrep', '-P', String(pid)]);
  return stdout.toString().split('\n').filter(Boolean).map(Number);
}

/** Proportional set size of a process and its children (proc(5), smaps_rollup). */
function proportionalBytes(pid: number): number {
  const own = /^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1];
  return childrenOf(pid).reduce((sum, child) => sum + proportionalBytes(child), Number(own) * 1024);
}
