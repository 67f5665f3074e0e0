// Does a machine that KubeVirt moves keep its address, answered by one pod at a time, while parts of the cluster fail?
//
// Pods stand for the machine's pods, with the labels and annotations that KubeVirt sets. Their kernels answer, as for a machine behind
// masquerading: the former pod does until it is silenced.
import fs from 'node:fs';
import { CATENA } from '../../helpers/catena.ts';
import { runOk } from '../../helpers/command.ts';
import type { Row } from '../../helpers/netns.ts';
import { awaiting } from '../awaiting.ts';
import { type Cluster, isReady } from '../cluster.ts';
import { FAULTS } from '../faults.ts';
import { longest, lossesIn, type Said, tell, watchAddresses } from '../neighbour.ts';
import { quantile } from '../sandbox-times.ts';
import { ANSWERING, must, pod, type Scenario, startControls } from '../scenario.ts';
import { NETWORKS, STATUS } from './definitions.ts';

const MOVES = 18;
const MACHINES = 6;
const MOST_LOSS_MS = 1000;
/** Those that do not take the link or the node of a machine away. */
const STRUCK = ['kubelet killed', 'daemon killed', 'API server killed', 'daemon frozen', 'etcd killed'];
const PAUSE_MS = 8000;
const NETWORK = 'machines';
const SUBNET = '10.67.0.0/26';
const NEIGHBOUR = '10.67.0.62';
const KUBECONFIG = '/etc/cni/net.d/catena.d/kubeconfig';
const CLAIM_KIND = 'k8s.cni.cncf.io/v1alpha1';

interface Machine {
  readonly name: string;
  readonly address: string;
  /** Numbers of its pods: the present one. */
  pod: number;
}

/** One that is done: between these times. */
interface Move {
  readonly address: string;
  readonly from: number;
  readonly to: number;
}

interface Play {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly said: readonly Said[];
}

export const migrations: Scenario = {
  name: 'machines that move',
  async play(cluster, namespace, saw, { count = MOVES }) {
    const { kubectl, wire } = cluster;
    const { lab } = wire;
    await kubectl.apply((await runOk([CATENA, 'install', '--print', 'crds', '--kubernetes', '1.20'])).stdout);
    await kubectl.apply(...objectsIn(namespace));
    await lab.run(lab.host, ['ip', 'addr', 'add', `${NEIGHBOUR}/26`, 'dev', 'switch']);
    const machines: Machine[] = [];
    for (let i = 0; i < MACHINES; i++) {
      const name = `vm${i}`;
      machines.push({
        name,
        pod: 0,
        address: await start(cluster, namespace, podOf(cluster, namespace, name, 0)),
      });
    }
    const controls = await startControls(cluster, namespace);
    const { said, stop } = await watchAddresses(lab, lab.host, 'switch', [
      ...machines.map(({ address }) => address),
      ...controls,
    ]);
    const play = { cluster, namespace, said };
    await awaiting('an answer at each address', 60, async () =>
      machines.every(({ address }) => said.some(one => one.address === address && 'holder' in one)),
    );
    const moves: Move[] = [];
    const struck = new Map<string, number>();
    let begun = 0;
    let isOver = false;
    const failing = (async () => {
      for (let i = 0; !isOver; i++) {
        const fault = FAULTS.find(({ name }) => name === STRUCK[i % STRUCK.length]);
        const node = cluster.nodes[i % cluster.nodes.length];
        if (fault && node) await fault.strike(cluster, node, i);
        struck.set(fault?.name ?? '', (struck.get(fault?.name ?? '') ?? 0) + 1);
        await Bun.sleep(PAUSE_MS);
      }
    })();
    try {
      await Promise.all(
        machines.map(async machine => {
          while (begun++ < count) {
            moves.push(await move(play, machine, begun % 3 === 0));
            // A long run says how far it is, and what it cost so far.
            const most = Math.max(...lossesOf(moves, said, controls));
            const told = tell(lossesIn(said, controls)).split(', ').slice(0, 3).join(', ');
            fs.writeSync(1, `    ${moves.length} of ${count} moves, at most ${most} ms (${told})\n`);
          }
        }),
      );
    } finally {
      isOver = true;
      await failing;
      await stop();
      await lab.run(lab.host, ['ip', 'addr', 'del', `${NEIGHBOUR}/26`, 'dev', 'switch']);
    }
    const faults = Array.from(struck, ([name, times]) => `${name} ${times}`).join(', ');
    const losses = lossesOf(moves, said, controls);
    const [half, most] = [quantile(losses, 0.5), quantile(losses, 1)];
    saw(
      `${losses.length} moves of ${MACHINES} machines over ${cluster.nodes.length} nodes: without an answer to ping or TCP for ${half} ms (median), ${most} ms (longest); less than 250 counts as 0`,
    );
    saw(`${faults}; never two that answer ARP, and none that answers again after it was left`);
    must(
      most !== undefined && most < MOST_LOSS_MS,
      `losses in ms: ${losses.toSorted((a, b) => a - b).join(' ')}: ${tell(lossesIn(said, controls))}`,
    );
    await forget(cluster, namespace);
  },
};

/** The longest of each move. */
function lossesOf(moves: readonly Move[], said: readonly Said[], controls: readonly string[]): number[] {
  const lost = lossesIn(said, controls);
  return moves.map(({ address, from, to }) =>
    longest(lost.filter(one => one.address === address && one.at > from && one.at - one.ms < to)),
  );
}

/** One link for all nodes, on which each address is a block of its own. */
function objectsIn(namespace: string): Row[] {
  const ipam = {
    ...{ type: 'cluster', kubeconfig: KUBECONFIG, pool: NETWORK, subnets: [{ ipv4: SUBNET }] },
    // A gateway is never handed out.
    ...{ blockSize: 1, layout: 'flat', gateways: [NEIGHBOUR] },
  };
  const plugins = [{ type: 'macvlan', master: 'eth0', capabilities: { ips: true }, ipam }];
  return [
    {
      apiVersion: 'k8s.cni.cncf.io/v1',
      kind: 'NetworkAttachmentDefinition',
      metadata: { name: NETWORK, namespace },
      spec: { config: JSON.stringify({ cniVersion: '1.1.0', name: NETWORK, plugins }) },
    },
    ...Array.from({ length: MACHINES }, (_, i) => ({
      apiVersion: CLAIM_KIND,
      kind: 'IPAMClaim',
      metadata: { name: `vm${i}`, namespace },
      spec: { network: NETWORK, interface: 'net1' },
    })),
  ];
}

/** The pod of a number: each one is on another node than the one before it. */
function podOf({ nodes }: Cluster, namespace: string, machine: string, number: number): Row {
  const place = nodes[(number + Number(machine.slice(2))) % nodes.length]?.place;
  const networks = [{ name: NETWORK, 'ipam-claim-reference': machine }];
  const labels = {
    ...{ 'kubevirt.io': 'virt-launcher', 'kubevirt.io/created-by': `uid-of-${machine}` },
    ...(number > 0 && { 'kubevirt.io/migrationJobUID': `job-${machine}-${number}` }),
  };
  const annotations = { 'kubevirt.io/domain': machine, [NETWORKS]: JSON.stringify(networks) };
  return pod(`${machine}-${number}`, {
    metadata: { namespace, labels, annotations },
    spec: { nodeName: place?.name },
    container: { resources: ANSWERING },
  });
}

/** @returns the address of a pod, once it is ready */
async function start({ kubectl }: Cluster, namespace: string, wanted: Row): Promise<string> {
  const { name } = wanted.metadata;
  await awaiting(`the object ${name}`, 60, async () => (await kubectl.apply(wanted)) !== '');
  return awaiting(`the pod ${name}`, 180, async () => {
    const found = await kubectl.get('pod', '-n', namespace, name);
    const [, own] = JSON.parse(found.metadata.annotations[STATUS] ?? '[]');
    return isReady(found) && String(own?.ips?.[0]);
  });
}

/** Moves a machine to the next node, as KubeVirt does: the new pod is told, and the former one ended. */
async function move({ cluster, namespace, said }: Play, machine: Machine, isForced: boolean): Promise<Move> {
  const { kubectl } = cluster;
  const [begun, from] = [said.length, Date.now()];
  const wanted = podOf(cluster, namespace, machine.name, machine.pod + 1);
  const { name } = wanted.metadata;
  const address = await start(cluster, namespace, wanted);
  must(address === machine.address, `${name} has ${address}, not ${machine.address}`);
  const own = () => said.slice(begun).filter(one => one.address === address);
  const holders = () => own().flatMap(one => ('holder' in one ? one.holder : []));
  must(holders().length === 0, `${name} answers before it is told: ${holders()}`);
  const told = ['label', 'pod', '-n', namespace, name, `kubevirt.io/nodeName=${wanted.spec.nodeName}`];
  await awaiting(
    `${name} to be told`,
    60,
    async () => (await kubectl.try(...told, '--overwrite')) !== undefined,
  );
  await awaiting(`${name} to answer`, 60, async () => holders().length > 0);
  const former = ['pod', '-n', namespace, `${machine.name}-${machine.pod}`];
  const how = isForced ? ['--grace-period=0', '--force'] : ['--wait=false'];
  await awaiting(`${former[3]} to end`, 120, async () => {
    await kubectl.try('delete', ...former, ...how);
    return (await kubectl('get', ...former, '--ignore-not-found')) === '';
  });
  await Bun.sleep(500);
  machine.pod++;
  const several = own().flatMap(one => ('several' in one ? one.several : []));
  must(several.length === 0, `${address} of ${name} is answered by several: ${several}`);
  must(holders().length === 1, `${address} of ${name} was answered by ${holders()} in turn`);
  return { address, from, to: Date.now() };
}

/** Ends the machines, and removes what nodes keep of the network. */
async function forget({ kubectl, nodes }: Cluster, namespace: string): Promise<void> {
  await kubectl('delete', 'pod', '-n', namespace, '--all', '--timeout=110s');
  await kubectl('delete', 'ipamclaims', '-n', namespace, '--all');
  for (const kind of ['addresses', 'pools'])
    await kubectl('delete', `${kind}.catena.cni.cncf.io`, '--all', '--timeout=60s');
  for (const { machine } of nodes)
    await machine.ok([
      'rm',
      '-rf',
      `/var/lib/cni/networks/${NETWORK}`,
      `/var/lib/catena/upkeep/cluster/${NETWORK}`,
    ]);
}
