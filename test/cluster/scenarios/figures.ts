// How long do sandboxes take with Catena and its daemon, without the daemon, and with the reference's plugins?
// The last scenario: it uninstalls Catena from the first node as the manual says, which has no network of ours afterwards.

import fs from 'node:fs';
import { REFERENCE_BIN_DIR } from '../../helpers/plugin.ts';
import { awaiting } from '../awaiting.ts';
import type { Cluster } from '../cluster.ts';
import { quantile, type SandboxTimes, sandboxTimes } from '../sandbox-times.ts';
import { deployment, must, type Scenario, untilPods } from '../scenario.ts';

const PODS = 30;
const ROUNDS = 2;

export const figures: Scenario = {
  name: 'figures and uninstall',
  leavesOther: true,
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const [node] = nodes;
    if (node === undefined) throw new Error('a cluster has a node');
    const { machine, place } = node;
    saw(`Catena with its daemon: ${await measure(cluster, namespace, 'with')}`);
    await kubectl('delete', 'daemonset', '-n', 'kube-system', 'catena', '--timeout=120s');
    await awaiting('the daemon to end', 60, async () => {
      const pods = await kubectl.list('pods', '-n', 'kube-system', '-l', 'app.kubernetes.io/name=catena');
      return pods.length === 0;
    });
    saw(`without: ${await measure(cluster, namespace, 'without')}`);
    const said = await machine.ok(['/opt/cni/bin/catena', 'uninstall', '--purge']);
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
    saw(`the reference's plugins: ${await measure(cluster, namespace, 'reference')}`);
  },
};

/** What the list of Catena comes to, in the reference's plugins, which have no flannel. */
function reference(subnet: string): object {
  const ipam = { type: 'host-local', ranges: [[{ subnet }]], routes: [{ dst: '0.0.0.0/0' }] };
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

/** Starts and stops that many pods on the first node. */
async function measure(cluster: Cluster, namespace: string, label: string): Promise<string> {
  const { kubectl, nodes, logs } = cluster;
  const spec = { nodeName: nodes[0]?.place.name };
  const all: SandboxTimes[] = [];
  const began = performance.now();
  for (let round = 0; round < ROUNDS; round++) {
    const own = `${namespace}-${label}-${round}`;
    await kubectl('create', 'namespace', own);
    await kubectl.apply({ ...deployment('web', PODS, { spec }), metadata: { name: 'web', namespace: own } });
    await untilPods(cluster, own, PODS, 300);
    await kubectl('delete', '-n', own, 'deployment', 'web');
    await untilPods(cluster, own, 0, 300);
    await kubectl('delete', 'namespace', own, '--timeout=110s');
    const log = fs
      .globSync(`${logs}/${nodes[0]?.place.name}-containerd-*.log`)
      .map(file => fs.readFileSync(file, 'utf8'))
      .join('\n');
    all.push(sandboxTimes(log, own));
  }
  const words = (values: readonly number[]): string =>
    `p50 ${quantile(values, 0.5)?.toFixed(0)} ms, p99 ${quantile(values, 0.99)?.toFixed(0)} ms (${values.length})`;
  const started = all.flatMap(one => one.started);
  const stopped = all.flatMap(one => one.stopped);
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  return `sandbox started ${words(started)}, stopped ${words(stopped)}, ${seconds} s for ${ROUNDS} times ${PODS} pods`;
}
