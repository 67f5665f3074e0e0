// Does a node with hundreds of pods start the next one as fast as the first, as a kubelet would ask its containerd, and is all of them gone
// afterwards?
//
//   bun test/bench/sandboxes.ts [sandboxes] [at once] [none]     500, 32; `none`: without a daemon
import { existsSync } from 'node:fs';
import { callsIn, readStopwatch, startStopwatch } from '../cluster/stopwatch.ts';
import { childrenOf } from '../helpers/children.ts';
import { withContainerd } from '../helpers/containerd.ts';
import type { Cri, Pod } from '../helpers/cri.ts';
import type { Machine, Traces } from '../helpers/machine.ts';
import { closeLabs, type Row } from '../helpers/netns.ts';
import { runtimeProgram, unpackRuntimes } from '../helpers/runtimes.ts';
import { until } from '../helpers/until.ts';
import { quantile, timed } from './measure.ts';
import { usedMs } from './watching.ts';

/** What is started one by one on the empty node, and beside all others. */
const ALONE = 7;
const REST_MS = 30_000;

const LIST: Row = {
  cniVersion: '1.0.0',
  name: 'pods',
  plugins: [
    {
      type: 'bridge',
      bridge: 'cni0',
      isDefaultGateway: true,
      ipMasq: true,
      hairpinMode: true,
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.22.0.0/16' }]] },
    },
    { type: 'portmap', capabilities: { portMappings: true } },
  ],
};

const say = (text: string) => process.stdout.write(`${text}\n`);
const show = (ms: readonly number[]) =>
  `${Math.round(quantile(ms))} / ${Math.round(quantile(ms, 0.99))} (${ms.length})`;

/** Works on so many at once. @returns why some failed */
async function each<T>(
  all: readonly T[],
  atOnce: number,
  work: (one: T) => Promise<void>,
): Promise<string[]> {
  const [left, failed] = [[...all], [] as string[]];
  const one = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift())
      await work(next).catch((error: Error) => failed.push(error.message));
  };
  await Promise.all(Array.from({ length: atOnce }, one));
  return failed;
}

/** Starts pods and says how long that took, and the calls of their plugins. */
class Timed {
  readonly pods: Pod[] = [];
  readonly #node: Parameters<typeof readStopwatch>[0];
  readonly #cri: Cri;
  #read = 0;

  constructor(node: Parameters<typeof readStopwatch>[0], cri: Cri) {
    [this.#node, this.#cri] = [node, cri];
  }

  /** @returns milliseconds of each ADD, in their order */
  async run(what: string, first: number, count: number, atOnce: number): Promise<number[]> {
    const sandboxes: number[] = [];
    const numbers = Array.from({ length: count }, (_, i) => first + i);
    const failed = await each(numbers, atOnce, async i => {
      const ports = [{ protocol: 'tcp', hostPort: 20_000 + i, containerPort: 80 }] as const;
      const run = async () => this.pods.push(await this.#cri.runPod({ name: `pod-${i}`, ports }));
      sandboxes.push(await timed(run));
    });
    const adds = this.calls('ADD');
    say(`${what}: ADD p50 / p99 ${show(adds)}, sandbox ${show(sandboxes)}, failed ${failed.length}`);
    for (const why of new Set(failed)) say(`  ${why}`);
    return adds;
  }

  /** Milliseconds of the calls since the last reading. */
  calls(verb: string): number[] {
    const text = readStopwatch(this.#node).slice(this.#read);
    this.#read += text.length;
    return callsIn(text).flatMap(call => (call.verb === verb ? call.ms : []));
  }

  async end(atOnce: number): Promise<void> {
    const tookMs = await timed(async () => {
      const failed = await each(this.pods, atOnce, async ({ id }) => {
        await this.#cri.stopPod(id);
        await this.#cri.removePod(id);
      });
      for (const why of new Set(failed)) say(`  not removed: ${why}`);
    });
    say(`removed in ${Math.round(tookMs / 1000)} s: DEL p50 / p99 ${show(this.calls('DEL'))}`);
  }
}

async function startDaemon(machine: Machine): Promise<number> {
  const { pid } = machine.start(['/opt/cni/bin/catena', 'daemon'], `${machine.lab.tmp}/daemon.log`);
  await until(() => existsSync(machine.path('/run/catena/catena.sock.wire')));
  // nsenter(1) starts it in the machine's namespace of process ids.
  return childrenOf(pid)[0] ?? pid;
}

/** What is there and was not before, apart from the daemon's workers and an older file of its history, once it has had time to go. */
async function leftOver(machine: Machine, before: Traces): Promise<readonly string[]> {
  const linesOf = ({ kernel, ...traces }: Traces) => [
    ...Object.values(kernel).flatMap(rows => rows.map((row: Row) => JSON.stringify(row))),
    ...Object.values(traces).flat(),
  ];
  const known = new Set(linesOf(before));
  const giveUpAt = performance.now() + REST_MS;
  for (;;) {
    const left = linesOf(await machine.traces()).filter(
      line => !known.has(line) && !/--worker|history\/events\.1$/.test(line),
    );
    if (left.length === 0 || performance.now() > giveUpAt) return left;
    await Bun.sleep(200);
  }
}

const [count = 500, atOnce = 32] = process.argv.slice(2, 4).map(Number);
const problem = await unpackRuntimes();
if (problem !== undefined) throw new Error(problem);
runtimeProgram('containerd');
await withContainerd([LIST], async ({ machine, containerd }) => {
  const daemon = process.argv[4] === 'none' ? undefined : await startDaemon(machine);
  const node = { machine, kill: () => containerd.kill(), start: () => containerd.start() };
  await startStopwatch(node);
  const cri = containerd.cri();
  const pods = new Timed(node, cri);
  // What the first pod of a node brings about is not measured.
  await pods.run('the first', 0, 2, 1);
  await pods.end(1);
  pods.pods.length = 0;
  const before = await machine.traces();
  const startedAt = performance.now();
  const few = await pods.run('on an empty node, one by one', 10, ALONE, 1);
  const adds = await pods.run(`${count} sandboxes, ${atOnce} at a time`, 100, count, atOnce);
  const part = Math.min(50, Math.floor(adds.length / 2));
  say(
    `  of these the first ${part} ${show(adds.slice(0, part))}, the last ${part} ${show(adds.slice(-part))}`,
  );
  const many = await pods.run(`beside ${pods.pods.length} others, one by one`, 20, ALONE, 1);
  say(`  ${(quantile(many) / quantile(few)).toFixed(2)} times as long as on an empty node`);
  if (new Set(pods.pods.map(({ ips }) => ips[0])).size !== pods.pods.length) say('two pods have one address');
  await pods.end(atOnce);
  cri.close();
  const left = await leftOver(machine, before);
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  say(`${left.length === 0 ? 'all is gone' : `left: ${left.join(', ')}`}; ${seconds} s in all`);
  if (daemon === undefined) return;
  say(`processor time of the daemon: ${Math.round(usedMs(daemon))} ms`);
  await Bun.sleep(REST_MS);
  const [used, at] = [usedMs(daemon), performance.now()];
  await Bun.sleep(REST_MS);
  const percent = ((usedMs(daemon) - used) / (performance.now() - at)) * 100;
  say(`${REST_MS / 1000} s after that: ${percent.toFixed(2)} % of a core`);
});
await closeLabs();
process.exit(0);
