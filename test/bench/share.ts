// Whose share of the processors do calls get, on a node whose pods want all of them?
//
//   bun test/bench/share.ts [calls at once] [rounds]     30, 3
//
// Groups as on a node: `system` with what a runtime starts, `pods` with the daemon's pod and one that computes all the time. On cgroup v1 weights are
// shares; on v2 they are converted as the kubelet does. What is below the root of a cgroup namespace needs to be writable.
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { quantile, renewed, timed } from './measure.ts';
import { portOf } from './sides.ts';

/** How a daemon is placed. */
interface Placed {
  /** CPU request of its pod in millicores. */
  readonly request: number;
  readonly workers: number;
  /** Its workers are in the group of the callers. */
  readonly inCallers?: boolean;
}

/** Without a daemon, and daemons of different weights and numbers of workers. */
const SIDES: readonly (Placed | undefined)[] = [
  undefined,
  { request: 100, workers: 4 },
  { request: 250, workers: 4 },
  { request: 250, workers: 2 },
  { request: 250, workers: 8 },
  { request: 250, workers: 4, inCallers: true },
  { request: 500, workers: 4 },
  { request: 1000, workers: 4 },
];
/** As of a pod that requests one core; as many processes as processors, and as many again. */
const LOAD = { millicores: 1000, processes: 4 };
/** Of `system`, and of `kubepods` on two cores. */
const SYSTEM_SHARES = 1024;
const PODS_SHARES = 2048;
/** Of all groups here, beside what else the machine does. */
const OWN_SHARES = 16_384;

const V1 = '/sys/fs/cgroup/cpu';
const isV1 = existsSync(join(V1, 'cpu.shares')) || existsSync(join(V1, 'cgroup.procs'));
const ROOT = isV1 ? V1 : '/sys/fs/cgroup';

const sharesOf = (millicores: number) => Math.floor((millicores * 1024) / 1000);

/** Makes a group of a weight. @returns its directory */
function group(parent: string, name: string, shares: number): string {
  const dir = join(parent, name);
  mkdirSync(dir, { recursive: true });
  if (!isV1) writeFileSync(join(parent, 'cgroup.subtree_control'), '+cpu');
  // The conversion of the kubelet (KEP-2254).
  const weight = Math.min(10_000, 1 + Math.floor(((shares - 2) * 9_999) / 262_142));
  writeFileSync(join(dir, isV1 ? 'cpu.shares' : 'cpu.weight'), String(isV1 ? shares : weight));
  return dir;
}

function move(pid: number, dir: string): void {
  writeFileSync(join(dir, 'cgroup.procs'), String(pid));
}

/** Those processes that have not gone yet are ended by their parents. */
async function remove(dirs: readonly string[]): Promise<void> {
  for (const dir of dirs) {
    for (let tries = 0; existsSync(dir) && tries < 100; tries++) {
      try {
        rmdirSync(dir);
      } catch {
        await Bun.sleep(50);
      }
    }
  }
}

const [count = 30, rounds = 3] = process.argv.slice(2).map(Number);
const home = readFileSync('/proc/self/cgroup', 'utf8');
const own = group(ROOT, `catena-share-${process.pid}`, OWN_SHARES);
const [system, pods] = [group(own, 'system', SYSTEM_SHARES), group(own, 'pods', PODS_SHARES)];
const [daemons, load] = [group(pods, 'daemon', 256), group(pods, 'load', sharesOf(LOAD.millicores))];
const busy = Array.from({ length: LOAD.processes }, () =>
  Bun.spawn(['sh', '-c', 'while :; do :; done'], { stdout: 'ignore' }),
);
for (const { pid } of busy) move(pid, load);
move(process.pid, system);

interface Side {
  readonly placed: Placed | undefined;
  readonly lab: Lab;
  readonly daemon: Daemon | undefined;
  readonly containers: readonly Container[];
  readonly times: Record<'add' | 'del', number[]>;
  /** Calls that gave up their wait for a lock. */
  gaveUp: number;
}

async function withSides(left: readonly (Placed | undefined)[], made: Side[]): Promise<void> {
  if (left.length === 0) return measure(made);
  const [placed, ...more] = left;
  await withHost(
    async lab => {
      const options = ['--log-level', 'error', '--workers', String(placed?.workers)];
      const daemon = placed && (await startDaemon(lab, ...options));
      const containers: Container[] = [];
      for (let i = 0; i < count; i++) containers.push(await lab.container());
      const side = { placed, lab, daemon, containers, times: { add: [], del: [] }, gaveUp: 0 };
      await withSides(more, [...made, side]);
      await daemon?.stop();
    },
    { directly: true },
  );
}

function place({ placed, daemon }: Side): () => void {
  if (placed === undefined || daemon === undefined) return () => {};
  group(pods, 'daemon', sharesOf(placed.request));
  move(daemon.pid, daemons);
  // Workers start during the calls, where the daemon is, and others of it have no part in this.
  const moveWorkers = () => {
    for (const pid of childrenOf(daemon.pid)) move(pid, placed.inCallers ? system : daemons);
  };
  moveWorkers();
  const timer = placed.inCallers ? setInterval(moveWorkers, 20) : undefined;
  return () => {
    clearInterval(timer);
    // Another daemon has the group next.
    for (const pid of [daemon.pid, ...childrenOf(daemon.pid)]) move(pid, system);
  };
}

async function measure(sides: readonly Side[]): Promise<void> {
  for (let round = 0; round <= rounds; round++) {
    for (const side of round % 2 ? sides.toReversed() : sides) {
      const { lab, containers, times } = side;
      const chain = writeChain(lab, fullChain(lab, { cniVersion: '1.0.0', rate: 800_000_000 }));
      const leave = place(side);
      for (const verb of ['add', 'del'] as const) {
        const run = async (one: Container, i: number): Promise<void> => {
          const cap = verb === 'add' ? { cap: portOf(i) } : {};
          const { exitCode, stderr } = await chain.run(verb, renewed(one, round), cap);
          if (exitCode !== 0 && !stderr.includes('did not release it within')) throw new Error(stderr);
          if (exitCode !== 0) side.gaveUp += 1;
        };
        const found = await Promise.all(containers.map((one, i) => timed(() => run(one, i))));
        if (round > 0) times[verb].push(...found);
      }
      leave();
    }
  }
  for (const { placed, times, gaveUp } of sides) {
    const show = (all: number[]) => `${Math.round(quantile(all))} / ${Math.round(quantile(all, 0.99))}`;
    const where = placed?.inCallers ? " in the callers' group" : '';
    const name = placed ? `daemon with ${placed.request}m, ${placed.workers} workers${where}` : 'no daemon';
    const failed = gaveUp > 0 ? `, ${gaveUp} gave up` : '';
    process.stdout.write(`${name}: ADD ${show(times.add)} · DEL ${show(times.del)}${failed}\n`);
  }
}

try {
  await withSides(SIDES, []);
} finally {
  for (const one of busy) one.kill('SIGKILL');
  await Promise.all(busy.map(one => one.exited));
  const back = /^\d+:cpu(?:,\w+)?:(.*)$/m.exec(home)?.[1] ?? /^0::(.*)$/m.exec(home)?.[1] ?? '/';
  move(process.pid, join(ROOT, back));
  await remove([daemons, load, system, pods, own]);
}
process.exit(0);
