// How long do the verbs of a whole chain take: ours cold and warm, and the reference's as its own runtime runs it?
import { readdirSync, readFileSync } from 'node:fs';
import { type Chain, fullChain, mixedBinDir, writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { type Contestant, quantile, renewed, type Samples, settle, takeTurns, timed } from './measure.ts';

/** Longer than a worker without work is kept. */
const IDLE_MS = 35_000;

const LINKS = ['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'];

/** Whose chain runs, and how. */
export type Side = 'reference' | 'ours' | 'warm';

/** What measuring needs to know beyond the side: who runs the reference's chain. */
export interface Peer {
  /** A program that runs it with libcni; our runner does without. */
  readonly libcni: string | undefined;
}

/** ADD, CHECK and DEL of bridge with host-local, portmap, bandwidth and tuning, one at a time, sides taking turns. */
export async function measureChain(peer: Peer, rounds: number): Promise<Samples> {
  return await withSides(['reference', 'ours', 'warm'], peer, async sides => {
    const contestants = await Promise.all(sides.map(single));
    for (const one of contestants) if (one.name === 'warm') await settle(one);
    return await takeTurns(contestants, rounds);
  });
}

/** What a burst did: milliseconds of a verb under load, the middle half of them, and attachments per second. */
export interface Burst {
  readonly medianMs: number;
  readonly spread: readonly [number, number];
  readonly perSecond: number;
}

/** Containers that a daemon has behind it before a burst is measured. */
const SETTLED_CONTAINERS = 400;

/** Parts of a burst between which the sides take turns. */
const PORTIONS = 4;

/** ADD and DEL of many containers, eight at a time; the sides take turns, a part of their containers each time. */
export async function measureBurst(
  peer: Peer,
  containers: number,
): Promise<Readonly<Record<Side, { ADD: Burst; DEL: Burst }>>> {
  const sides = ['reference', 'ours', 'warm'] as const;
  return await withSides(sides, peer, async runners => {
    const contestants = await Promise.all(runners.map(runner => withContainers(runner, containers)));
    const add: Work = ({ run }, one, i) => run('add', one, portOf(i));
    const del: Work = ({ run }, one) => run('del', one);
    const warm = contestants.filter(({ runner }) => runner.side === 'warm');
    // A daemon runs for weeks: the code of each of its workers is compiled by then.
    for (let served = 0; served < SETTLED_CONTAINERS; served += containers) {
      const before = warm.map(({ runner, all }) => ({ runner, all: all.map(one => renewed(one, served)) }));
      for (const work of [add, del]) await inPortions(before, work);
    }
    const [ADD, DEL] = [await inPortions(contestants, add), await inPortions(contestants, del)];
    const of = (side: Side) => ({ ADD: summarize(ADD.get(side)), DEL: summarize(DEL.get(side)) });
    return { reference: of('reference'), ours: of('ours'), warm: of('warm') };
  });
}

/** Warm ADD and DEL of one more container, with few attachments and with many on the node; and what the daemon weighs. */
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
            ...{ ADD, 'ADD, processor time of the daemon': adding },
            ...{ DEL, 'DEL, processor time of the daemon': deleting },
          };
        },
      });
    }
    for (const one of contestants) await settle(one);
    const samples = await takeTurns(contestants, rounds);
    // Then those workers are gone that have nothing to do, and the last has given back what calls had left.
    await Bun.sleep(IDLE_MS);
    for (const { daemonPid } of sides) if (daemonPid) memory.push(proportionalBytes(daemonPid));
    return { samples, memoryBytes: Math.max(...memory) };
  });
}

/** A chain in a fake host of its own, and how one verb of it is run. */
interface Runner {
  readonly side: Side;
  readonly lab: Lab;
  readonly daemonPid?: number;
  run(verb: 'add' | 'check' | 'del', container: Container, cap?: object): Promise<void>;
}

async function withSides<T>(
  sides: readonly Side[],
  peer: Peer,
  body: (runners: Runner[]) => Promise<T>,
): Promise<T> {
  const [side, ...more] = sides;
  if (side === undefined) return await body([]);
  const withSide = async (lab: Lab): Promise<T> => {
    const chain = prepare(lab, side);
    const daemon = side === 'warm' ? await startDaemon(lab) : undefined;
    const runner: Runner = {
      side,
      lab,
      ...(daemon ? { daemonPid: daemon.pid } : {}),
      run:
        side === 'reference' && peer.libcni ? libcniRun(lab, chain, peer.libcni) : ownRun(lab, chain, side),
    };
    try {
      return await withSides(more, peer, runners => body([runner, ...runners]));
    } finally {
      await daemon?.stop();
    }
  };
  return await withHost(withSide, { directly: true });
}

function prepare(lab: Lab, side: Side): Chain {
  const list = fullChain(lab, { cniVersion: '1.0.0', rate: 800_000_000 });
  list.name = side;
  return writeChain(lab, list);
}

function ownRun(lab: Lab, chain: Chain, side: Side): Runner['run'] {
  const binDir = side === 'reference' ? mixedBinDir(lab, REFERENCE_BIN_DIR, ...LINKS) : BIN_DIR;
  return async (verb, container, cap) => {
    check(await chain.run(verb, container, { binDir, ...(cap ? { cap } : {}) }));
  };
}

function libcniRun(lab: Lab, chain: Chain, program: string): Runner['run'] {
  const file = `${lab.tmp}/${chain.name}.conflist`;
  return async (verb, container, cap) => {
    const argv = [program, verb, file, container.path, container.id, `${lab.tmp}/cni`];
    const env = { CNI_PATH: REFERENCE_BIN_DIR, PATH: process.env.PATH ?? '' };
    check(
      await lab.run(lab.host, [...argv, ...(cap ? [JSON.stringify(cap)] : [])], { env, timeoutMs: 60_000 }),
    );
  };
}

async function single(runner: Runner): Promise<Contestant> {
  const { lab, side } = runner;
  // A node is never empty: the bridge exists, and so do the shared rules.
  await runner.run('add', await lab.container(), portOf(20_000));
  const [container, checked] = [await lab.container(), await lab.container()];
  await runner.run('add', checked, portOf(20_001));
  return {
    name: side,
    async round(i) {
      const one = renewed(container, i);
      return {
        ADD: await timed(() => runner.run('add', one, portOf(i))),
        CHECK: await timed(() => runner.run('check', checked)),
        DEL: await timed(() => runner.run('del', one)),
      };
    },
  };
}

function portOf(i: number): object {
  return { portMappings: [{ hostPort: 10_000 + i, containerPort: 80, protocol: 'tcp' }] };
}

type Work = (runner: Runner, one: Container, i: number) => Promise<void>;

/** A side and the containers that it is to attach. */
interface Laden {
  readonly runner: Runner;
  readonly all: readonly Container[];
}

async function withContainers(runner: Runner, containers: number): Promise<Laden> {
  const all: Container[] = [];
  for (let i = 0; i < containers; i++) all.push(await runner.lab.container());
  return { runner, all };
}

/** What the parts of a burst took, each verb by itself and all together. */
interface Taken {
  readonly times: number[];
  wholeMs: number;
}

/** Has every side do its work in parts, in turns. */
async function inPortions(contestants: readonly Laden[], work: Work): Promise<Map<Side, Taken>> {
  const taken = new Map(
    contestants.map(({ runner }): [Side, Taken] => [runner.side, { times: [], wholeMs: 0 }]),
  );
  for (let portion = 0; portion < PORTIONS; portion++) {
    for (const { runner, all } of portion % 2 ? contestants.toReversed() : contestants) {
      const part = [...all.entries()].filter(([i]) => i % PORTIONS === portion);
      const sum = taken.get(runner.side);
      if (sum) sum.wholeMs += await timed(() => eightAtATime(part, runner, work, sum.times));
    }
  }
  return taken;
}

async function eightAtATime(
  queue: [number, Container][],
  runner: Runner,
  work: Work,
  times: number[],
): Promise<void> {
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const [i, one] = next;
      times.push(await timed(() => work(runner, one, i)));
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

function summarize({ times, wholeMs }: Taken = { times: [], wholeMs: 0 }): Burst {
  return {
    medianMs: quantile(times),
    spread: [quantile(times, 0.25), quantile(times, 0.75)],
    perSecond: (times.length * 1000) / wholeMs,
  };
}

/** Time that a process and its children have had a processor, in all their threads (proc(5), schedstat). */
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

function check({ exitCode, stderr }: { exitCode: number; stderr: string }): void {
  if (exitCode !== 0) throw new Error(`the chain failed with ${exitCode}: ${stderr}`);
}
