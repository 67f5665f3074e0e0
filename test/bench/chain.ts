// How long do the verbs of a whole chain take: ours cold and warm, and the reference's as its own runtime runs it?
import { readdirSync, readFileSync } from 'node:fs';
import { childrenOf } from '../helpers/children.ts';
import {
  type Contestant,
  renewed,
  type Samples,
  settle,
  takeTurns,
  timed,
  WARMUP_ROUNDS,
} from './measure.ts';
import { type Peer, portOf, RUNTIME_SIDES, type Side, single, withSides } from './sides.ts';
import { callsIn, inKernel, readTraces, sum } from './traces.ts';

/** The verbs of a chain that are measured. */
export const CHAIN_VERBS = ['ADD', 'CHECK', 'DEL'] as const;
export type ChainVerb = (typeof CHAIN_VERBS)[number];

/** Target ratios to the reference, of one chain at a time. */
export const CHAIN_TARGETS = {
  cold: { ADD: 0.4, CHECK: 1.8, DEL: 0.35 },
  warm: { ADD: 0.15, CHECK: 0.35, DEL: 0.2 },
} as const;

/** The same for chains whose executables a runtime starts. */
export const RUNTIME_TARGETS = {
  cold: { ADD: 1, CHECK: 2, DEL: 0.6 },
  warm: { ADD: 0.3, CHECK: 0.6, DEL: 0.45 },
} as const;

/** ADD, CHECK and DEL of bridge with host-local, portmap, bandwidth and tuning by the command, one at a time, sides taking turns. */
export function measureChain(peer: Peer, rounds: number): Promise<Samples> {
  return measureSides(['reference', 'ours', 'warm'], peer, rounds);
}

/** The same, but a runtime starts each executable. */
export function measureRuntimeChain(peer: Peer, rounds: number): Promise<Samples> {
  return measureSides(RUNTIME_SIDES, peer, rounds);
}

async function measureSides(sides: readonly Side[], peer: Peer, rounds: number): Promise<Samples> {
  return await withSides(sides, peer, async runners => {
    const contestants = await Promise.all(runners.map(single));
    for (const one of contestants) if (one.name.endsWith('warm')) await settle(one);
    return await takeTurns(contestants, rounds);
  });
}

/** Warm ADD and DEL of one more container, with few attachments and with many on the node, and what of it is the kernel's. */
export async function measureWarmGrowth(sizes: readonly [number, number], rounds: number): Promise<Samples> {
  const peer = { libcni: undefined };
  return await withSides(['warm', 'warm'], peer, async sides => {
    const contestants: Contestant[] = [];
    for (const [n, runner] of sides.entries()) {
      const size = sizes[n] ?? 0;
      for (let i = 0; i < size; i++) await runner.run('add', await runner.lab.container(), portOf(i));
      const container = await runner.lab.container();
      contestants.push({
        name: `${size}`,
        async round(i) {
          const one = renewed(container, i);
          const before = processorMs(runner.daemon?.pid);
          const ADD = await timed(() => runner.run('add', one, portOf(30_000 + i)));
          const between = processorMs(runner.daemon?.pid);
          const DEL = await timed(() => runner.run('del', one));
          const after = processorMs(runner.daemon?.pid);
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
    for (const [n, { lab }] of sides.entries()) {
      const records = await readTraces(lab, rounds + WARMUP_ROUNDS - 1);
      for (const verb of ['ADD', 'DEL']) {
        const own = records.filter(record => record.verb === verb).slice(-rounds);
        const kernel = own.map(record => sum(callsIn(record), inKernel));
        const requests = own.map(record =>
          sum(callsIn(record), ({ transactions = [] }) => transactions.length),
        );
        samples.set(`${sizes[n]} ${verb}, in the kernel`, kernel);
        samples.set(`${sizes[n]} ${verb}, requests to the kernel`, requests);
      }
    }
    return samples;
  });
}

/** Processor time of a process and its children, in all their threads (proc(5), schedstat). */
export function processorMs(pid: number | undefined): number {
  if (pid === undefined) return 0;
  const own = readdirSync(`/proc/${pid}/task`).reduce((sum, task) => {
    const [ran = '0'] = readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ');
    return sum + Number(ran) / 1e6;
  }, 0);
  return childrenOf(pid).reduce((sum, child) => sum + processorMs(child), own);
}
