// How long do ADD and DEL of pods take, and how much processor time: with Catena and its daemon, the DaemonSet's or one that calls start,
// without a daemon, and with the reference? A list of plugins that containerd calls one by one is compared with the same list of the reference's, and the runner that reports
// `network-status` with multus in front of them.

import fs from 'node:fs';
import path from 'node:path';
import { REFERENCE_BIN_DIR } from '../../helpers/plugin.ts';
import { awaiting } from '../awaiting.ts';
import { buildMultus } from '../build.ts';
import type { Cluster } from '../cluster.ts';
import { weightsOf } from '../groups.ts';
import { ALL_AT_ONCE, untilInstalled } from '../install-catena.ts';
import type { Node } from '../node.ts';
import { processorTime } from '../processor-time.ts';
import { quantile, sandboxTimes } from '../sandbox-times.ts';
import { deployment, type Scenario, untilPods } from '../scenario.ts';
import { callPluginsOf, callsIn, PLUGINS, readStopwatch, startStopwatch } from '../stopwatch.ts';

const REFERENCE = '/opt/cni/reference';
const LIST = '/etc/cni/net.d/00-0-figures.conflist';
/** That of Catena's account, which both sides with a front use. */
const KUBECONFIG = '/etc/cni/net.d/catena.d/kubeconfig';

/** In the command line of a daemon, whatever started it. */
const DAEMON = 'catena daemon';

/** What calls a network. */
interface Side {
  readonly name: string;
  /** Whose daemon works for the calls, if any does: that of the DaemonSet, or one that a call starts and that ends when it is idle. */
  readonly daemon?: 'kept' | 'on demand';
  /** The side that ours is compared with; without one, it is the reference's. */
  readonly peer?: string;
  /** What stands in front of the plugins. */
  readonly front?: 'catena' | 'multus';
}

const SIDES: readonly Side[] = [
  { name: 'plain list with daemon', daemon: 'kept', peer: 'plain list of the reference' },
  { name: 'runner with daemon', daemon: 'kept', peer: 'multus', front: 'catena' },
  { name: 'plain list on demand', daemon: 'on demand', peer: 'plain list of the reference' },
  { name: 'runner on demand', daemon: 'on demand', peer: 'multus', front: 'catena' },
  { name: 'plain list without daemon', peer: 'plain list of the reference' },
  { name: 'runner without daemon', peer: 'multus', front: 'catena' },
  { name: 'plain list of the reference' },
  { name: 'multus', front: 'multus' },
];

/** A single pod is started so often in one run. */
const SINGLY = 4;
/** Pods that each side has before it is measured: a daemon works for weeks, and compiles what its first pods need. */
const FIRST = 30;

/** No call for so long: the kubelet of the harness removes sandboxes every two seconds. */
const CALM_MS = 5_000;

/** What a run of one side measured with one number of pods: milliseconds. */
const MEASURED = [
  'ADD p50',
  'ADD p99',
  'DEL p50',
  'DEL p99',
  'sandbox p50',
  'sandbox p99',
  'CPU a pod',
] as const;
type Figures = Readonly<Record<(typeof MEASURED)[number], number>>;

/** One side with one number of pods, in all runs so far. */
interface Cell {
  readonly side: Side;
  readonly pods: number;
  readonly runs: Figures[];
}

export const figures: Scenario = {
  name: 'figures',
  async play(cluster, namespace, saw, asked) {
    const [node] = cluster.nodes;
    if (node === undefined) throw new Error('a cluster has a node');
    const multus = await buildMultus();
    if ('missing' in multus) saw(`no multus: ${multus.missing}`);
    const sides = SIDES.filter(
      ({ name, front }) =>
        (front !== 'multus' || 'program' in multus) && asked.sides.some(word => name.includes(word)),
    );
    if (sides.length === 0)
      throw new Error(`No side has such a name: ${SIDES.map(({ name }) => name).join('; ')}`);
    const { machine } = node;
    fs.cpSync(REFERENCE_BIN_DIR, machine.path(REFERENCE), { recursive: true, dereference: true });
    if ('program' in multus) fs.copyFileSync(multus.program, machine.path(`${REFERENCE}/multus`));
    await startStopwatch(node);
    saw(`weights: ${weightsOf(machine)}`);
    const cells = sides.flatMap(side => asked.pods.map((pods): Cell => ({ side, pods, runs: [] })));
    const table = path.join(cluster.logs, 'figures.md');
    let isRunning = true;
    for (let run = 1; run <= asked.runs; run++) {
      for (const side of sides) {
        if (isRunning !== (side.daemon === 'kept')) {
          isRunning = !isRunning;
          await (isRunning ? startDaemons(cluster) : stopDaemons(cluster));
        }
        if (side.daemon === 'on demand') await installStarter(node, 'on-demand');
        callPluginsOf(node, side.peer === undefined ? REFERENCE : PLUGINS);
        machine.write(LIST, JSON.stringify(listOf(side, node.place.pods)));
        try {
          const { 'CPU a pod': first } = await measure(cluster, node, namespace, FIRST);
          saw(
            `${side.name}, run ${run}: the first ${FIRST} pods took ${first.toFixed(0)} ms of processor time each`,
          );
          for (const cell of cells.filter(one => one.side === side)) {
            cell.runs.push(await measure(cluster, node, namespace, cell.pods));
            fs.writeFileSync(table, tableOf(cells));
          }
          if (side.daemon && run === 1) saw(`${side.name}: ${await atRest(node)}`);
        } finally {
          fs.rmSync(machine.path(LIST));
          if (side.daemon === 'on demand') await installStarter(node, 'none');
        }
      }
    }
    callPluginsOf(node, PLUGINS);
    if (!isRunning) await startDaemons(cluster);
    fs.writeSync(1, `\n${tableOf(cells)}\n`);
    saw(`${asked.runs} runs of ${sides.length} sides: ${table}`);
  },
};

const DAEMONS = ['-n', 'kube-system', 'daemonset/catena'];

/** Leaves the pods of the DaemonSet, whose account the runner uses, and has them sleep instead. */
async function stopDaemons(cluster: Cluster): Promise<void> {
  const at = '/spec/template/spec/containers/0';
  const sleep = ['nsenter', '--target=1', '--mount', '--', 'sleep', 'infinity'];
  const patch = [
    ALL_AT_ONCE,
    { op: 'replace', path: `${at}/command`, value: sleep },
    ...['startupProbe', 'readinessProbe', 'livenessProbe'].map(probe => ({
      op: 'remove',
      path: `${at}/${probe}`,
    })),
  ];
  await cluster.kubectl('patch', ...DAEMONS, '--type=json', `--patch=${JSON.stringify(patch)}`);
  await untilReplaced(cluster);
}

async function startDaemons(cluster: Cluster): Promise<void> {
  await cluster.kubectl('rollout', 'undo', ...DAEMONS);
  await untilReplaced(cluster);
}

/** Has calls start a daemon of their own, in the group of the runtime that makes them; or ends that, and its daemon. */
async function installStarter({ machine }: Node, starter: 'on-demand' | 'none'): Promise<void> {
  await machine.ok([`${PLUGINS}/catena`, 'install', '--daemon', starter]);
  if (starter === 'none') await machine.run([`${PLUGINS}/catena`, 'daemon', '--stop']);
}

async function untilReplaced(cluster: Cluster): Promise<void> {
  await awaiting('the pods of Catena to be replaced', 300, async () => {
    const said = await cluster.kubectl.try('rollout', 'status', ...DAEMONS, '--watch=false');
    return said?.includes('successfully rolled out');
  });
  await untilInstalled(cluster);
}

/** The same list for all, with what stands in front of it. */
function listOf({ front }: Side, subnet: string): object {
  const ipam = { type: 'host-local', ranges: [[{ subnet }]] };
  const plain = {
    cniVersion: '1.0.0',
    name: 'figures',
    plugins: [
      { type: 'bridge', bridge: 'cni0', hairpinMode: true, isDefaultGateway: true, ipMasq: true, ipam },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'bandwidth', capabilities: { bandwidth: true } },
    ],
  };
  if (front === undefined) return plain;
  const capabilities = { portMappings: true, bandwidth: true };
  const plugins = [{ type: front, capabilities, kubeconfig: KUBECONFIG, delegates: [plain] }];
  return { cniVersion: '1.0.0', name: front, plugins };
}

/** Starts and stops pods on a node. */
async function measure(cluster: Cluster, node: Node, namespace: string, pods: number): Promise<Figures> {
  const { kubectl, logs } = cluster;
  const spec = { nodeName: node.place.name };
  const metadata = { name: 'web', namespace };
  const sandboxes: number[] = [];
  const before = readStopwatch(node).length;
  const daemon = () => processorTime(node.machine, DAEMON);
  const used = daemon();
  const rounds = pods === 1 ? SINGLY : 1;
  for (let round = 0; round < rounds; round++) {
    const since = logOf(logs, node).length;
    await kubectl.apply({ ...deployment('web', pods, { spec }), metadata });
    await untilPods(cluster, namespace, pods, 900);
    await kubectl('delete', '-n', namespace, 'deployment', 'web');
    await untilPods(cluster, namespace, 0, 900);
    sandboxes.push(...sandboxTimes(logOf(logs, node).slice(since), namespace).started);
  }
  await untilCallsEnd(node);
  const calls = callsIn(readStopwatch(node).slice(before));
  const cpu = calls.reduce((sum, { cpuMs }) => sum + cpuMs, 0) + daemon() - used;
  const of = (verb: string): number[] => calls.filter(one => one.verb === verb).map(({ ms }) => ms);
  const at = (values: readonly number[], share: number): number => quantile(values, share) ?? Number.NaN;
  const [added, deleted] = [of('ADD'), of('DEL')];
  return {
    'ADD p50': at(added, 0.5),
    'ADD p99': at(added, 0.99),
    'DEL p50': at(deleted, 0.5),
    'DEL p99': at(deleted, 0.99),
    'sandbox p50': at(sandboxes, 0.5),
    'sandbox p99': at(sandboxes, 0.99),
    'CPU a pod': cpu / (pods * rounds),
  };
}

/**
 * The runtime deletes the network of a pod that has gone again, and once more when it removes the sandbox: those calls cost processor time of
 * these pods, not of the next ones.
 */
async function untilCallsEnd(node: Node): Promise<void> {
  let [seen, since] = [0, performance.now()];
  await awaiting('the last calls for pods that have gone', 120, async () => {
    const { length } = readStopwatch(node);
    if (length !== seen) [seen, since] = [length, performance.now()];
    return performance.now() - since > CALM_MS;
  });
}

/** What the daemon needs 30 seconds after the last pod has gone. */
async function atRest({ machine }: Node): Promise<string> {
  await Bun.sleep(30_000);
  const [began, before] = [performance.now(), processorTime(machine, DAEMON)];
  await Bun.sleep(10_000);
  const used = processorTime(machine, DAEMON) - before;
  return `${((used / (performance.now() - began)) * 100).toFixed(1)} % of a core 30 s after the last pod`;
}

/** Medians, with the least and the most of all runs if they differ; for ours, also what part of the peer's median that is. */
export function tableOf(cells: readonly Cell[]): string {
  const rows = cells.map(cell => {
    const peer = cells.find(({ side, pods }) => side.name === cell.side.peer && pods === cell.pods);
    const values = MEASURED.map(name => {
      const all = cell.runs.map(run => run[name]);
      if (all.length === 0) return '';
      const [least, median, most] = [0, 0.5, 1].map(share => quantile(all, share) ?? Number.NaN) as number[];
      const others = quantile(peer?.runs.map(run => run[name]) ?? [], 0.5);
      const part = others === undefined ? '' : ` ×${((median ?? Number.NaN) / others).toFixed(2)}`;
      const spread = all.length === 1 ? '' : ` (${least?.toFixed(0)}–${most?.toFixed(0)})`;
      return `${median?.toFixed(0)}${spread}${part}`;
    });
    return `| ${[cell.pods, cell.side.name, ...values].join(' | ')} |`;
  });
  const head = ['pods', 'with', ...MEASURED];
  return `| ${head.join(' | ')} |\n|${'---|'.repeat(head.length)}\n${rows.join('\n')}\n`;
}

/** containerd's, of all its starts. */
function logOf(logs: string, { place }: Node): string {
  return fs
    .globSync(`${logs}/${place.name}-containerd-*.log`)
    .sort()
    .map(file => fs.readFileSync(file, 'utf8'))
    .join('\n');
}
