// How long do ADD and DEL of pods take with Catena and its daemon, without the daemon, and with the reference's plugins?
// The last scenario: it uninstalls Catena from the first node as the manual says, which has no network of ours afterwards.

import fs from 'node:fs';
import { REFERENCE_BIN_DIR } from '../../helpers/plugin.ts';
import { awaiting } from '../awaiting.ts';
import type { Cluster } from '../cluster.ts';
import { histogramIn, quantileBetween } from '../histograms.ts';
import { ALL_AT_ONCE, uninstallCatena, untilInstalled } from '../install-catena.ts';
import type { Node } from '../node.ts';
import { processorTime } from '../processor-time.ts';
import { quantile, type SandboxTimes, sandboxTimes } from '../sandbox-times.ts';
import { deployment, must, type Scenario, untilPods } from '../scenario.ts';
import { type Call, callsIn, readStopwatch, startStopwatch } from '../stopwatch.ts';

/** How many pods start and stop at a time, and how often. */
const BURSTS = [
  [1, 4],
  [30, 1],
  [110, 1],
] as const;

export const figures: Scenario = {
  name: 'figures and uninstall',
  endsCatena: true,
  async play(cluster, namespace, saw) {
    const [node] = cluster.nodes;
    if (node === undefined) throw new Error('a cluster has a node');
    const { machine, place } = node;
    await startStopwatch(node);
    const measureAll = async (label: string): Promise<void> => {
      for (const [pods, rounds] of BURSTS) {
        saw(`${label}, ${pods}: ${await measure(cluster, node, namespace, { pods, rounds })}`);
      }
    };
    await measureAll('daemon');
    await stopDaemons(cluster);
    await measureAll('no daemon');
    const said = await uninstallCatena(cluster, node);
    saw(`uninstall --purge on ${place.name}: ${said.split('\n').at(-1)}`);
    const rules = await machine.ok(['nft', 'list', 'tables']);
    must(!rules.includes('catena'), `tables remain: ${rules}`);
    const files = await machine.ok(['ls', '/opt/cni/bin', '/etc/cni/net.d']);
    must(!/bridge|catena|conflist/.test(files), `files remain: ${files}`);
    const { files: kept } = await machine.holds();
    must(kept.length === 0, `files remain: ${kept.join(', ')}`);
    for (const name of fs.readdirSync(REFERENCE_BIN_DIR)) {
      fs.copyFileSync(`${REFERENCE_BIN_DIR}/${name}`, machine.path(`/opt/cni/bin/${name}`));
    }
    machine.write('/etc/cni/net.d/10-reference.conflist', JSON.stringify(reference(place.pods)));
    await measureAll('reference');
  },
};

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
  const of = ['-n', 'kube-system', 'daemonset/catena'];
  await cluster.kubectl('patch', ...of, '--type=json', `--patch=${JSON.stringify(patch)}`);
  await awaiting('the daemons to end', 300, async () => {
    const said = await cluster.kubectl.try('rollout', 'status', ...of, '--watch=false');
    return said?.includes('successfully rolled out');
  });
  await untilInstalled(cluster);
}

/** What the list of Catena comes to, in the reference's plugins, which have no flannel and refuse a second default route. */
function reference(subnet: string): object {
  const ipam = { type: 'host-local', ranges: [[{ subnet }]] };
  return {
    cniVersion: '1.0.0',
    name: 'reference',
    plugins: [
      { type: 'bridge', bridge: 'cni0', hairpinMode: true, isDefaultGateway: true, ipMasq: true, ipam },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'bandwidth', capabilities: { bandwidth: true } },
    ],
  };
}

/** Starts and stops pods on a node. */
async function measure(
  cluster: Cluster,
  node: Node,
  namespace: string,
  { pods, rounds }: { readonly pods: number; readonly rounds: number },
): Promise<string> {
  const { kubectl, logs } = cluster;
  const spec = { nodeName: node.place.name };
  const metadata = { name: 'web', namespace };
  const sandboxes: SandboxTimes[] = [];
  const before = readStopwatch(node).length;
  const daemon = () => processorTime(node.machine, '/opt/cni/bin/catena');
  const metrics = await readMetrics(cluster, node);
  const [began, used] = [performance.now(), daemon()];
  for (let round = 0; round < rounds; round++) {
    const since = logOf(logs, node).length;
    await kubectl.apply({ ...deployment('web', pods, { spec }), metadata });
    await untilPods(cluster, namespace, pods, 600);
    await kubectl('delete', '-n', namespace, 'deployment', 'web');
    await untilPods(cluster, namespace, 0, 600);
    sandboxes.push(sandboxTimes(logOf(logs, node).slice(since), namespace));
  }
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  const calls = callsIn(readStopwatch(node).slice(before));
  const cpu = (calls.reduce((sum, { cpuMs }) => sum + cpuMs, 0) + daemon() - used) / (pods * rounds);
  const of = (verb: string): number[] => calls.filter((one: Call) => one.verb === verb).map(({ ms }) => ms);
  return [
    `ADD ${words(of('ADD'))}`,
    `DEL ${words(of('DEL'))}`,
    `sandbox ${words(sandboxes.flatMap(({ started }) => started))}`,
    ...told(metrics, await readMetrics(cluster, node)),
    `${cpu.toFixed(0)} ms of processor time a pod`,
    `${seconds} s`,
  ].join(', ');
}

interface Metrics {
  readonly kubelet: string;
  /** Empty without a daemon. */
  readonly daemon: string;
}

async function readMetrics({ kubectl }: Cluster, { machine, place }: Node): Promise<Metrics> {
  const kubelet = (await kubectl.try('get', '--raw', `/api/v1/nodes/${place.name}/proxy/metrics`)) ?? '';
  const socket = ['--unix-socket', '/run/catena/catena.sock', 'http://catena/metrics'];
  const { stdout } = await machine.run(['curl', '-sf', '--max-time', '5', ...socket]);
  return { kubelet, daemon: stdout };
}

const KUBELET = 'kubelet_runtime_operations_duration_seconds';
const DAEMON = 'catena_request_duration_seconds';

/** What kubelet and the daemon say themselves: the upper bounds of the buckets in which the quantiles are. */
function told(before: Metrics, after: Metrics): string[] {
  const rows = [
    ['kubelet: run_podsandbox', 'kubelet', KUBELET, { operation_type: 'run_podsandbox' }],
    ['stop_podsandbox', 'kubelet', KUBELET, { operation_type: 'stop_podsandbox' }],
    ['daemon: ADD', 'daemon', DAEMON, { verb: 'ADD' }],
    ['DEL', 'daemon', DAEMON, { verb: 'DEL' }],
  ] as const;
  return rows.flatMap(([what, of, name, labels]) => {
    const [from, to] = [before, after].map(one => histogramIn(one[of], name, labels));
    const at = (share: number) => quantileBetween(from ?? new Map(), to ?? new Map(), share);
    const [half, most] = [at(0.5), at(0.99)];
    return half === undefined || most === undefined
      ? []
      : `${what} p50 up to ${(half * 1000).toFixed(0)} p99 up to ${(most * 1000).toFixed(0)} ms`;
  });
}

/** containerd's, of all its starts. */
function logOf(logs: string, { place }: Node): string {
  return fs
    .globSync(`${logs}/${place.name}-containerd-*.log`)
    .sort()
    .map(file => fs.readFileSync(file, 'utf8'))
    .join('\n');
}

function words(values: readonly number[]): string {
  return `p50 ${quantile(values, 0.5)?.toFixed(0)} p99 ${quantile(values, 0.99)?.toFixed(0)} ms (${values.length})`;
}
