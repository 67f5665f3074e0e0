// Does every attachment end up in the state reported to its caller when workers and daemon are killed at random?

import { tryRead } from '../../src/files/read-file.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { type Inventory, inventory, leftOver } from './inventory.ts';

/** The outcome of a churn. */
export interface ChurnReport {
  readonly requests: number;
  readonly seconds: number;
  /** Requests by verb, and how many of them failed. */
  readonly verbs: Readonly<Record<string, { readonly asked: number; readonly failed: number }>>;
  readonly killed: { readonly workers: number; readonly daemons: number };
  /** Proportional memory of the daemon and its workers in MiB, at each tenth of the requests. */
  readonly memoryMb: readonly number[];
  /** The same after a while without requests, if nothing was killed. */
  readonly restingMb?: number;
  /** Attachments that were not in the state reported to their callers. */
  readonly wrong: readonly string[];
  /** What the host holds at the end that it did not hold before. */
  readonly left: Inventory;
}

/** How many requests, and how often a process is killed. */
export interface ChurnPlan {
  readonly requests: number;
  /** Milliseconds between two kills, on average; 0 to kill nothing. */
  readonly killEveryMs: number;
  readonly seed: number;
}

const AT_ONCE = 8;
const CONTAINERS = 16;
/** Probability that the next request for an existing attachment is a CHECK, not the DEL. */
const CHECK_SHARE = 0.15;
/** Failed requests are retried, as runtimes do. */
const ATTEMPTS = 20;
/** Largest memory of a daemon that has done a lot of work and is idle now. */
const RESTING_LIMIT_MB = 100;
/** Longer than an idle worker is kept. */
const REST_MS = 36_000;

/**
 * An nsenter for each request would be a hundredth of all work. A thread of ours left in the host's namespace is harmless, since
 * this process does nothing there.
 */
const DIRECTLY = { directly: true };

/** The state of an attachment as its caller knows it. After a failed DEL it may be either. */
type Known = 'present' | 'absent' | 'unknown';

/** Runs the full chain through a daemon that is killed and restarted, and whose workers are killed. */
export function runChurn({ requests, killEveryMs, seed }: ChurnPlan): Promise<ChurnReport> {
  return withHost(async lab => {
    const random = randomFrom(seed);
    const chain = writeChain(lab, fullChain(lab, { rate: 80_000_000 }));
    const containers: Container[] = [];
    for (let i = 0; i < CONTAINERS; i++) containers.push(await lab.container());
    const [first] = containers;
    if (first === undefined) throw new Error('unreachable');
    // What stays after the first attachment, such as the fixed tables.
    await chain.add(first, { cap: portsOf(0) });
    await chain.run('del', first);
    const before = await inventory(lab, containers);

    const verbs: Record<string, { asked: number; failed: number }> = {};
    const wrong: string[] = [];
    const known = new Map<Container, Known>(containers.map(one => [one, 'absent']));
    const run = async (verb: string, one: Container): Promise<boolean> => {
      const count = verbs[verb] ?? { asked: 0, failed: 0 };
      verbs[verb] = count;
      count.asked += 1;
      const cap = verb === 'add' ? { cap: portsOf(containers.indexOf(one)) } : {};
      const { exitCode } = await chain.run(verb, one, cap);
      if (exitCode !== 0) count.failed += 1;
      return exitCode === 0;
    };
    // The worker that serves a CHECK may be the next to be killed.
    const confirm = async (one: Container, why: string): Promise<void> => {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) if (await run('check', one)) return;
      wrong.push(`${one.id}: CHECK fails though ${why}`);
    };
    const step = async (one: Container): Promise<void> => {
      const state = known.get(one);
      if (state === 'absent') {
        known.set(one, (await run('add', one)) ? 'present' : 'absent');
      } else if (state === 'present' && random() < CHECK_SHARE) {
        await confirm(one, 'ADD had succeeded');
      } else {
        known.set(one, (await run('del', one)) ? 'absent' : 'unknown');
      }
    };

    const killer = startKiller(lab, killEveryMs, random);
    const started = performance.now();
    const free = [...containers];
    let left = requests;
    const memoryMb: number[] = [];
    const tenth = Math.max(1, Math.ceil(requests / 10));
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        while (left-- > 0) {
          if (left % tenth === 0) memoryMb.push(killer.memoryMb());
          const [one] = free.splice(Math.floor(random() * free.length), 1);
          if (one === undefined) continue;
          await step(one);
          free.push(one);
        }
      }),
    );
    const seconds = (performance.now() - started) / 1000;
    if (killEveryMs === 0) await Bun.sleep(REST_MS);
    const resting = killEveryMs === 0 ? { restingMb: killer.memoryMb() } : {};
    const killed = await killer.stop();
    for (const [one, state] of known) {
      if (state === 'present') await confirm(one, 'it was there at the end');
    }
    for (const one of containers) await deleteForGood(one, run, wrong);
    return {
      requests,
      seconds,
      verbs,
      killed,
      memoryMb,
      ...resting,
      wrong,
      left: leftOver(before, await inventory(lab, containers)),
    };
  }, DIRECTLY);
}

/** The problems after a churn, human-readable; empty if there are none. */
export function findFaults({ wrong, left, restingMb = 0 }: ChurnReport): string[] {
  const leaks = Object.entries(left)
    .filter(([, names]) => names.length > 0)
    .map(([kind, names]) => `${names.length} left, ${kind}: ${names.slice(0, 5).join(', ')}`);
  const heavy = restingMb > RESTING_LIMIT_MB;
  return [...wrong, ...leaks, ...(heavy ? [`daemon and workers keep ${restingMb} MiB when they rest`] : [])];
}

interface Killer {
  /** Proportional memory of the current daemon and its workers. */
  memoryMb(): number;
  stop(): Promise<{ workers: number; daemons: number }>;
}

/** Kills a worker, or one time in four the daemon, which is restarted at once. */
function startKiller(lab: Lab, everyMs: number, random: () => number): Killer {
  const killed = { workers: 0, daemons: 0 };
  let over = false;
  let daemon: Daemon | undefined;
  const work = (async () => {
    daemon = await startDaemon(lab);
    while (!over && everyMs > 0) {
      await Bun.sleep(everyMs * 2 * random());
      if (over) break;
      const workers = childrenOf(daemon.pid);
      const victim = workers[Math.floor(random() * workers.length)];
      if (random() < 0.25 || victim === undefined) {
        kill(daemon.pid);
        killed.daemons += 1;
        daemon = await startDaemon(lab);
      } else {
        kill(victim);
        killed.workers += 1;
      }
    }
  })();
  return {
    memoryMb: () => Math.round(proportionalKb(daemon?.pid) / 1024),
    async stop() {
      over = true;
      await work;
      await daemon?.stop();
      return killed;
    },
  };
}

async function deleteForGood(
  one: Container,
  run: (verb: string, one: Container) => Promise<boolean>,
  wrong: string[],
): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) if (await run('del', one)) return;
  wrong.push(`${one.id}: DEL does not succeed`);
}

function portsOf(i: number): object {
  return { portMappings: [{ hostPort: 20_000 + i, containerPort: 80, protocol: 'tcp' }] };
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has already ended.
  }
}

/** Proportional set size of a process and its children (proc(5), smaps_rollup); 0 if it has ended. */
function proportionalKb(pid: number | undefined): number {
  if (pid === undefined) return 0;
  const own = /^Pss:\s+(\d+) kB/m.exec(tryRead(`/proc/${pid}/smaps_rollup`) ?? '')?.[1];
  return childrenOf(pid).reduce((sum, child) => sum + proportionalKb(child), Number(own ?? 0));
}

/** Numbers from 0 to 1 that a seed determines (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
