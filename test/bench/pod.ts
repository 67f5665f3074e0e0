// What does a pod cost a node in processor time and system calls, when a runtime calls loopback and a list of bridge, portmap and
// bandwidth, or the delegate runner with the annotation of the pod's networks?
//
//   bun test/bench/pod.ts time [sides] [pods]        milliseconds of processor time a pod
//   bun test/bench/pod.ts calls [sides] [plugins]    system calls of one pod by strace(1), whose lines are in $OUT (/tmp)
//
// Sides: reference, cold (no daemon), warm (a daemon), runner (the delegate runner with a daemon); plugins: some of the four.
import { readFileSync, writeFileSync } from 'node:fs';
import { childrenOf } from '../helpers/children.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { bringIntoLab } from '../helpers/into-lab.ts';
import { type ApiServer, startApiServer } from '../helpers/kubernetes.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { until } from '../helpers/until.ts';
import { usedMs } from './watching.ts';

const SIDES = ['reference', 'cold', 'warm', 'runner'] as const;
type Side = (typeof SIDES)[number];

const VERBS = ['ADD', 'DEL'] as const;
type Verb = (typeof VERBS)[number];

/** Pods of a block: a tick of processor time is ten milliseconds, so that a single pod has none to speak of. */
const BLOCK = 20;
/** Pods that a daemon has served before. */
const SETTLED = 100;

/** Numbers of pods that are used for nothing else. */
const SETTLING = 10_000;

const PLUGINS = ['loopback', 'bridge', 'portmap', 'bandwidth'];

/** Milliseconds of processor time a pod: what the runtime starts, and the daemon with its workers. */
interface PodTime {
  readonly clients: number;
  readonly daemon: number;
}

/** A node on which pods are made. */
interface Node {
  readonly side: Side;
  readonly lab: Lab;
  /** Id of the daemon, if there is one. */
  readonly daemon: number | undefined;
  call(verb: Verb, pod: number): Promise<void>;
}

/** Makes and deletes so many pods on each side, in turns. */
async function measurePodTime(
  sides: readonly Side[],
  rounds: number,
): Promise<ReadonlyMap<Side, Readonly<Record<Verb, PodTime>>>> {
  return await withNodes(sides, PLUGINS, [], async nodes => {
    for (const node of nodes) if (node.daemon) await settle(node);
    const found = new Map<Side, Record<Verb, { clients: number; daemon: number }>>();
    const blocks = Math.ceil(rounds / BLOCK);
    for (let i = 0; i < blocks; i++) {
      for (const node of i % 2 ? nodes.toReversed() : nodes) {
        const times = await block(node, i * BLOCK, BLOCK);
        const sum = found.get(node.side) ?? {
          ADD: { clients: 0, daemon: 0 },
          DEL: { clients: 0, daemon: 0 },
        };
        for (const verb of VERBS) {
          sum[verb].clients += times[verb].clients / blocks;
          sum[verb].daemon += times[verb].daemon / blocks;
        }
        found.set(node.side, sum);
      }
    }
    return found;
  });
}

async function settle(node: Node): Promise<void> {
  for (let i = 0; i < SETTLED; i += BLOCK) await block(node, SETTLING + i, BLOCK);
}

async function block(node: Node, first: number, count: number): Promise<Record<Verb, PodTime>> {
  const times = {} as Record<Verb, PodTime>;
  for (const verb of VERBS) {
    const before = [endedMs(), node.daemon ? usedMs(node.daemon) : 0] as const;
    for (let i = 0; i < count; i++) await node.call(verb, first + i);
    const after = [endedMs(), node.daemon ? usedMs(node.daemon) : 0] as const;
    times[verb] = { clients: (after[0] - before[0]) / count, daemon: (after[1] - before[1]) / count };
  }
  return times;
}

/** Processor time of the children of this process that have ended, in milliseconds: cutime and cstime of proc(5). */
function endedMs(): number {
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[13]) + Number(fields[14])) * 10;
}

/** System calls of one pod: how often by `<who> <name>`, and the trace. */
interface PodCalls {
  readonly calls: ReadonlyMap<string, number>;
  readonly lines: readonly string[];
}

/** Traces one pod after many: its clients and, with a daemon, that and its workers. */
async function tracePod(side: Side, plugins: readonly string[]): Promise<Readonly<Record<Verb, PodCalls>>> {
  return await withNodes([side], plugins, [], async ([node]) => {
    if (node === undefined) throw new Error('unreachable');
    await settle(node);
    await node.call('ADD', 1);
    const found = {} as Record<Verb, PodCalls>;
    for (const verb of VERBS) {
      // The watch looks at what is new after a second, and at what changes in namespaces four times a second.
      await Bun.sleep(1_500);
      found[verb] = await traced(node, () => node.call(verb, 2).then(() => Bun.sleep(300)));
    }
    return found;
  });
}

async function traced({ lab, daemon }: Node, work: () => Promise<void>): Promise<PodCalls> {
  const file = `${lab.tmp}/strace`;
  const served = daemon === undefined ? [] : [daemon, ...childrenOf(daemon)];
  const followed = [process.pid, ...served].flatMap(pid => ['-p', `${pid}`]);
  const args = ['-f', '-qq', '-yy', '-s', '120', '-o', file, ...followed];
  const tracer = Bun.spawn(['strace', ...args], { stdout: 'ignore', stderr: 'inherit' });
  await until(() => [process.pid, ...served].every(isTraced));
  await work();
  tracer.kill('SIGTERM');
  await tracer.exited;
  const calls = new Map<string, number>();
  const clients = new Set<number>();
  const lines = readFileSync(file, 'utf8')
    .split('\n')
    .filter(line => {
      const [, thread, name] = /^(\d+) +(\w+)\(/.exec(line) ?? [];
      const pid = Number(thread);
      // What the runtime starts is of interest from then on, and not what threads do that collect garbage.
      if (name === 'execve') clients.add(pid);
      const who = pid === daemon ? 'daemon' : served.includes(pid) ? 'worker' : 'client';
      if (who === 'client' && !clients.has(pid)) return false;
      if (name !== undefined) calls.set(`${who} ${name}`, (calls.get(`${who} ${name}`) ?? 0) + 1);
      return true;
    });
  return { calls, lines };
}

function isTraced(pid: number): boolean {
  return !/^TracerPid:\t0$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}

async function withNodes<T>(
  sides: readonly Side[],
  plugins: readonly string[],
  made: Node[],
  body: (nodes: Node[]) => Promise<T>,
): Promise<T> {
  const [side, ...more] = sides;
  if (side === undefined) return await body(made);
  return await withHost(
    async lab => {
      await lab.run(lab.host, ['ip', 'link', 'set', 'lo', 'up']);
      const api = side === 'runner' ? await startApiServer(lab.tmp) : undefined;
      const leave = api && (await bringIntoLab(lab, Number(new URL(api.url).port)));
      const isServed = side === 'warm' || side === 'runner';
      const daemon = isServed ? await startDaemon(lab, '--node-name', 'node') : undefined;
      try {
        return await withNodes(
          more,
          plugins,
          [...made, await nodeOf(side, lab, plugins, daemon?.pid, api)],
          body,
        );
      } finally {
        await daemon?.stop();
        leave?.();
        await api?.close();
      }
    },
    { directly: true },
  );
}

async function nodeOf(
  side: Side,
  lab: Lab,
  plugins: readonly string[],
  daemon: number | undefined,
  api: ApiServer | undefined,
): Promise<Node> {
  const containers: Container[] = [];
  for (let i = 0; i < BLOCK; i++) containers.push(await lab.container());
  const binDir = side === 'reference' ? REFERENCE_BIN_DIR : BIN_DIR;
  const results = new Map<number, unknown>();
  const call = async (verb: Verb, pod: number): Promise<void> => {
    const name = `pod${pod}`;
    const list = listOf(lab, api, pod).filter(({ type }) => type === 'catena' || plugins.includes(type));
    const one = { ...(containers[pod % BLOCK] as Container), id: `id-${side}-${pod}` };
    if (verb === 'ADD') api?.addPod('default', name, { uid: `uid-${pod}` });
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=${name};K8S_POD_INFRA_CONTAINER_ID=${one.id};K8S_POD_UID=uid-${pod}`;
    const run = async (
      type: string,
      conf: Row,
      ifname: string,
      prevResult?: unknown,
    ): Promise<PluginReply> => {
      const given = {
        command: verb,
        container: one,
        ifname,
        args,
        binDir,
        conf: { ...conf, cniVersion: '1.0.0' },
      };
      const reply = await lab.plugin(type, { ...given, ...(prevResult ? { prevResult } : {}) });
      if (reply.exitCode !== 0)
        throw new Error(`Cannot ${verb} with ${binDir}/${type}: ${reply.stdout}${reply.stderr}`);
      return reply;
    };
    if (plugins.includes('loopback')) await run('loopback', { name: 'cni-loopback', type: 'loopback' }, 'lo');
    let result = verb === 'ADD' ? undefined : results.get(pod);
    for (const plugin of verb === 'ADD' ? list : list.toReversed()) {
      const reply = await run(plugin.type, { ...plugin, name: `net-${side}` }, 'eth0', result);
      if (verb === 'ADD') result = reply.result;
    }
    if (verb === 'ADD') results.set(pod, result);
    else results.delete(pod);
  };
  return { side, lab, daemon, call };
}

/** The list as a runtime passes it, with what capabilities ask for. */
function listOf(lab: Lab, api: ApiServer | undefined, pod: number): Row[] {
  const ipam = { type: 'host-local', ranges: [[{ subnet: '10.88.0.0/16' }]], dataDir: `${lab.tmp}/leases` };
  const ports = [{ hostPort: 10_000 + pod, containerPort: 80, protocol: 'tcp' }];
  const rates = { ingressRate: 8e8, ingressBurst: 8e6, egressRate: 8e8, egressBurst: 8e6 };
  const plain = [
    { type: 'bridge', bridge: 'cni0', isGateway: true, ipMasq: true, hairpinMode: true, ipam },
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'bandwidth', capabilities: { bandwidth: true } },
  ];
  const runtimeConfig = { portMappings: ports, bandwidth: rates };
  if (api === undefined)
    return [plain[0] as Row, { ...plain[1], runtimeConfig }, { ...plain[2], runtimeConfig }];
  const delegates = [{ cniVersion: '1.0.0', name: 'inner', plugins: plain }];
  const capabilities = { portMappings: true, bandwidth: true };
  return [{ type: 'catena', kubeconfig: api.kubeconfig, capabilities, runtimeConfig, delegates }];
}

const [what = 'time', which = SIDES.join(), more] = process.argv.slice(2);
const sides = which.split(',') as Side[];
if (what === 'time') {
  for (const [side, { ADD, DEL }] of await measurePodTime(sides, Number(more ?? 200))) {
    const show = ({ clients, daemon }: PodTime) =>
      `${(clients + daemon).toFixed(1)} (clients ${clients.toFixed(1)}, daemon ${daemon.toFixed(1)})`;
    process.stdout.write(`${side}: ADD ${show(ADD)} · DEL ${show(DEL)}\n`);
  }
} else {
  for (const side of sides) {
    const found = await tracePod(side, more?.split(',') ?? PLUGINS);
    for (const [verb, { calls, lines }] of Object.entries(found)) {
      writeFileSync(`${process.env.OUT ?? '/tmp'}/pod-${side}-${verb}.strace`, lines.join('\n'));
      const sorted = [...calls].toSorted(([, a], [, b]) => b - a);
      const total = sorted.reduce((sum, [, n]) => sum + n, 0);
      process.stdout.write(
        `${side} ${verb}: ${total}: ${sorted.map(([name, n]) => `${name} ${n}`).join(', ')}\n`,
      );
    }
  }
}
process.exit(0);
