// Does a cluster leave multus, and go back to it, while its pods run on and are answered?
//
// By what `catena install --print switch-from-multus` prints on a node. Multus is played (multus/main.go): Debian has no package of it. Its plugins
// are the reference's; ours stand for whereabouts and flannel, from a directory that is not the node's.
import fs from 'node:fs';
import { CATENA } from '../../helpers/catena.ts';
import type { Row } from '../../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../../helpers/plugin.ts';
import { awaiting } from '../awaiting.ts';
import { buildMultus } from '../build.ts';
import type { Cluster } from '../cluster.ts';
import { installCatena, removeCatena, uninstallCatena, untilInstalled } from '../install-catena.ts';
import { POOLS_OF_WHEREABOUTS } from '../kinds.ts';
import { longest, lossesIn, tell, watchAddresses } from '../neighbour.ts';
import type { Node } from '../node.ts';
import { ANSWERING, must, pod, type Scenario, startControls, untilPods } from '../scenario.ts';
import { NETWORKS, STATUS } from './definitions.ts';

const NEIGHBOUR = '10.68.0.254';
const RANGE = '10.68.0.0/24';
const MOST_LOSS_MS = 1000;
const BIN = '/opt/cni/bin';
const LIST = '/etc/cni/net.d/00-multus.conf';
const NOTES = '/var/lib/cni/multus';
const PLAYED = ['flannel', 'whereabouts'];
/** On each node: one that runs on until the end, and one that the other program deletes. */
const KEPT = 'stays';

export const leaveMultus: Scenario = {
  name: 'switch from multus and back',
  // Catena is removed first, and with it the bridges that earlier scenarios have left.
  leaves: /^(br-.*|plain0)$/,
  async play(cluster, namespace, saw) {
    const multus = await buildMultus();
    if ('missing' in multus) return saw(`skipped: ${multus.missing}`);
    const { kubectl, nodes, wire } = cluster;
    const { lab } = wire;
    await uninstallCatena(cluster, nodes);
    for (const node of nodes) placeMultus(cluster, node, multus.program);
    await kubectl.apply(...POOLS_OF_WHEREABOUTS);
    await awaiting('the definition', 60, () => kubectl.apply(definitionOf(cluster, namespace)));
    await lab.run(lab.host, ['ip', 'addr', 'add', `${NEIGHBOUR}/24`, 'dev', 'switch']);
    const start = (...names: string[]) => startPods(cluster, namespace, names);
    const end = (name: string) => endPods(cluster, namespace, name);
    const controls = await startControls(cluster, namespace);
    const kept = await start(KEPT, 'goes');
    must(haveNotes(nodes), 'multus has not noted its pods');
    const addresses = kept.filter(one => one.metadata.name.startsWith(KEPT)).flatMap(addressesOf);
    const { said, stop } = await watchAddresses(lab, lab.host, 'switch', [...addresses, ...controls]);
    try {
      const [first] = nodes;
      const argv = [CATENA, 'install', '--print', 'switch-from-multus', '--kubernetes', '1.20'];
      const printed = (await first?.machine.ok(argv, { timeoutMs: 60_000 })) ?? '';
      for (const line of [
        `${2 * nodes.length} pods that name networks`,
        `10.68.0.0-24 (${2 * nodes.length} in use)`,
      ])
        must(printed.includes(line), `the command does not print "${line}": ${printed.slice(0, 2000)}`);
      await kubectl.apply(printed);
      await untilInstalled(cluster);
      const [, list = ''] = /--conf-name[",\s-]+([\w.-]+)/.exec(printed) ?? [];
      must(list.endsWith('.conflist'), 'the command names no list');
      await end('goes');
      await start('late', 'gone');
      await end('gone');
      await untilInUse(cluster, 2 * nodes.length);
      saw(
        `to Catena: ${nodes.length} pods of multus deleted by it, ${2 * nodes.length} made, ${nodes.length} of them deleted; ${nodes.length} of multus ran on`,
      );
      await removeCatena(cluster);
      for (const { machine } of nodes) await machine.ok(['rm', `/etc/cni/net.d/${list}`]);
      // containerd looks at the directory.
      await Bun.sleep(2000);
      await end('late');
      await start('again');
      must(haveNotes(nodes), 'multus has not noted its pods');
      await untilInUse(cluster, 2 * nodes.length);
      saw(`and back: ${nodes.length} pods of Catena deleted by multus, which made ${nodes.length} more`);
      // What was asked last has its time without an answer told with the next one.
      await Bun.sleep(1000);
    } finally {
      await stop();
      await lab.run(lab.host, ['ip', 'addr', 'del', `${NEIGHBOUR}/24`, 'dev', 'switch']);
      await kubectl.try('delete', 'pod', '-n', namespace, '--all', '--timeout=110s');
      await untilInUse(cluster, 0).finally(() => restore(cluster));
    }
    const several = said.flatMap(one => ('several' in one ? [one.address] : []));
    must(several.length === 0, `answered by several: ${several}`);
    const losses = lossesIn(said, controls);
    const most = longest(losses);
    must(most < MOST_LOSS_MS, `without an answer: ${tell(losses)}`);
    saw(
      `${addresses.length} addresses of pods that ran on, asked by ping and TCP all the time: ${most} ms without an answer at most; less than 250 counts as 0`,
    );
  },
};

/** Multus without a daemon, as its manifest leaves it on a node. */
function placeMultus({ kubectl }: Cluster, { machine }: Node, program: string): void {
  for (const name of fs.readdirSync(REFERENCE_BIN_DIR))
    fs.copyFileSync(`${REFERENCE_BIN_DIR}/${name}`, machine.path(`${BIN}/${name}`));
  for (const name of PLAYED)
    fs.writeFileSync(machine.path(`${BIN}/${name}`), `#!/bin/sh\nexec ${BIN_DIR}/${name}\n`, { mode: 0o755 });
  fs.copyFileSync(program, machine.path(`${BIN}/multus`));
  const flannel = {
    type: 'flannel',
    delegate: { bridge: 'cni0', hairpinMode: true, isDefaultGateway: true },
  };
  const list = {
    cniVersion: '1.0.0',
    name: 'multus-cni-network',
    type: 'multus',
    kubeconfig: kubectl.kubeconfig,
    capabilities: { portMappings: true },
    delegates: [
      {
        cniVersion: '1.0.0',
        name: 'default',
        plugins: [flannel, { type: 'portmap', capabilities: { portMappings: true } }],
      },
    ],
  };
  machine.write(LIST, JSON.stringify(list));
}

/** Catena alone again. */
async function restore(cluster: Cluster): Promise<void> {
  // Unless it is gone.
  await removeCatena(cluster).catch(() => undefined);
  for (const node of cluster.nodes) {
    await node.machine.run([`${BIN}/catena`, 'uninstall']);
    removeMultus(node);
  }
  for (const { metadata } of POOLS_OF_WHEREABOUTS) await cluster.kubectl('delete', 'crd', metadata.name);
  await installCatena(cluster);
}

function removeMultus({ machine }: Node): void {
  for (const name of [...fs.readdirSync(REFERENCE_BIN_DIR), ...PLAYED, 'multus'])
    fs.rmSync(machine.path(`${BIN}/${name}`), { force: true });
  for (const file of [LIST, NOTES, '/var/lib/cni/networks', '/var/lib/cni/flannel'])
    fs.rmSync(machine.path(file), { recursive: true, force: true });
}

/** One link for all nodes, with addresses of a pool of whereabouts. */
function definitionOf({ kubectl }: Cluster, namespace: string): Row {
  const ipam = { type: 'whereabouts', range: RANGE, range_end: '10.68.0.99' };
  const kubernetes = { kubeconfig: kubectl.kubeconfig };
  const plugins = [{ type: 'macvlan', master: 'eth0', ipam: { ...ipam, kubernetes } }];
  return {
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: { name: 'lan', namespace },
    spec: { config: JSON.stringify({ cniVersion: '1.0.0', name: 'lan', plugins }) },
  };
}

/** One of each name on every node. @returns all pods, once they are ready */
async function startPods(cluster: Cluster, namespace: string, names: readonly string[]): Promise<Row[]> {
  const { kubectl, nodes } = cluster;
  const wanted = nodes.flatMap(({ place }) =>
    names.map(name =>
      pod(`${name}-${place.name}`, {
        metadata: { namespace, annotations: { [NETWORKS]: 'lan' } },
        spec: { nodeName: place.name },
        container: { resources: ANSWERING },
      }),
    ),
  );
  const before = await kubectl.list('pods', '-n', namespace);
  await kubectl.apply(...wanted);
  const all = await untilPods(cluster, namespace, before.length + wanted.length);
  const devices = all
    .filter(({ spec }) => !spec.hostNetwork)
    .map(one => JSON.parse(one.metadata.annotations[STATUS] ?? '[]').length);
  must(
    devices.every(count => count === 2),
    `the pods have ${devices} networks`,
  );
  return all;
}

async function endPods({ kubectl, nodes }: Cluster, namespace: string, name: string): Promise<void> {
  const names = nodes.map(({ place }) => `${name}-${place.name}`);
  await kubectl('delete', 'pod', '-n', namespace, ...names, '--timeout=110s');
}

function addressesOf({ metadata }: Row): string[] {
  const status: Row[] = JSON.parse(metadata.annotations[STATUS] ?? '[]');
  return status.map(({ ips }) => String(ips?.[0]));
}

/** Multus keeps a note of each pod beside its results. */
function haveNotes(nodes: readonly Node[]): boolean {
  return nodes.every(({ machine }) => fs.readdirSync(machine.path(NOTES)).length > 1);
}

/** Waits until the pool has that many addresses in use. */
async function untilInUse({ kubectl }: Cluster, count: number): Promise<void> {
  await awaiting(`${count} addresses in use`, 60, async () => {
    const pools = await kubectl.list('ippools.whereabouts.cni.cncf.io', '-A');
    const used = pools.flatMap(({ spec }) => Object.keys(spec.allocations ?? {}));
    must(used.length === count, `${used.length} are`);
    return true;
  });
}
