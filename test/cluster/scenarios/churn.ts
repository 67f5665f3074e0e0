// Has every address one pod, and is none lost, while pods come and go and each part of the cluster fails in turn?

import fs from 'node:fs';
import { cidrContains, parseCidr, parseIp } from '../../../src/net/ip.ts';
import type { Row } from '../../helpers/netns.ts';
import { Random } from '../../storm/random.ts';
import { awaiting } from '../awaiting.ts';
import type { Cluster } from '../cluster.ts';
import { FAULTS, restartDaemon } from '../faults.ts';
import {
  blocksOf,
  findDisagreements,
  leasesOf,
  type PoolWatch,
  usedOn,
  type WatchedPools,
  watchPools,
} from '../pool-checker.ts';
import { failedSandboxes, sandboxTimes } from '../sandbox-times.ts';
import { deployment, must, type Scenario, untilPods } from '../scenario.ts';
import { NETWORKS, STATUS } from './definitions.ts';

/** Faults begin so long, and at least once each. */
const CHURN_S = 150;
/** Between two faults. */
const PAUSE_MS = 2500;
/** Pods of a node while they come and go, and after that. */
const MOST_PODS = 7;
const CALM_PODS = 3;

const KUBECONFIG = '/etc/cni/net.d/catena.d/kubeconfig';
/** As few addresses as suffice: most are handed out several times. Five of the eight in a block are for pods. */
const SUBNETS = { blocks: { ipv4: '10.65.0.0/25', ipv6: 'fd65::/121' }, singles: { ipv4: '10.66.0.0/26' } };
/** By the name of the network, which is that of its pool, too. */
const POOLS: Readonly<Record<string, Row>> = {
  blocks: { subnets: [SUBNETS.blocks], blockSize: 8, lowWater: 2, coolDown: 3 },
  singles: { subnets: [SUBNETS.singles], blockSize: 1, layout: 'flat' },
};
const ADDRESSES_OF_POD = 3;

const CIDRS = Object.values(SUBNETS).flatMap(subnet => Object.values(subnet).map(parseCidr));
const WATCHED: WatchedPools = {
  networks: Object.keys(POOLS),
  isOfPool: address => CIDRS.some(cidr => cidrContains(cidr, parseIp(address))),
};

export const churn: Scenario = {
  name: 'addresses under churn',
  leaves: /^br-(blocks|singles)$/,
  async play(cluster, namespace, saw) {
    const { kubectl } = cluster;
    await kubectl.apply(...definitionsIn(namespace), ...deploymentsIn(cluster, namespace));
    const watch = watchPools(cluster, WATCHED);
    try {
      saw(await failInTurn(cluster, namespace, watch));
      mustAgree(watch);
      await untilCalm(cluster, namespace);
      await scale(cluster, namespace, 0);
      await untilPods(cluster, namespace, 0, 240);
      await untilNoneIsLost(cluster);
    } finally {
      await watch.stop();
    }
    mustAgree(watch);
    const { looks, comparisons, used, claimed, returned } = watch;
    saw(startsOf(cluster, namespace));
    saw(
      `${looks} looks at ${used} addresses in pods and at every lease, ${comparisons} comparisons with the objects: ` +
        `${claimed} blocks and single addresses claimed, ${returned} given back, 0 contradictions`,
    );
    saw('after the last pod no lease is left, and each node knows the blocks that it holds');
    await forget(cluster);
  },
};

/** A network of blocks with both families, and one of single addresses, which asks the API server at each ADD and DEL. */
function definitionsIn(namespace: string): Row[] {
  return Object.entries(POOLS).map(([name, options]) => {
    const ipam = { type: 'cluster', kubeconfig: KUBECONFIG, pool: name, ...options };
    const config = { cniVersion: '1.1.0', name, plugins: [{ type: 'bridge', bridge: `br-${name}`, ipam }] };
    return {
      apiVersion: 'k8s.cni.cncf.io/v1',
      kind: 'NetworkAttachmentDefinition',
      metadata: { name, namespace },
      spec: { config: JSON.stringify(config) },
    };
  });
}

/** One for each node, of its name. */
function deploymentsIn({ nodes }: Cluster, namespace: string): Row[] {
  const annotations = { [NETWORKS]: Object.keys(POOLS).join() };
  return nodes.map(({ place: { name } }) => ({
    ...deployment(name, 0, { metadata: { annotations }, spec: { nodeName: name } }),
    metadata: { name, namespace },
  }));
}

function mustAgree({ problems }: PoolWatch): void {
  must(problems.size === 0, `${problems.size} contradictions: ${[...problems].slice(0, 8).join(', ')}`);
}

/** Strikes with one fault after the other while pods come and go, until there is a contradiction. @returns how often each struck */
async function failInTurn(cluster: Cluster, namespace: string, { problems }: PoolWatch): Promise<string> {
  const { nodes } = cluster;
  const struck = new Map<string, number>();
  const started = Date.now();
  const stream = startStream(cluster, namespace);
  try {
    for (let i = 0; i < FAULTS.length || Date.now() - started < CHURN_S * 1000; i++) {
      const [fault, node] = [FAULTS[i % FAULTS.length], nodes[i % nodes.length]];
      if (fault === undefined || node === undefined || problems.size > 0) break;
      await Bun.sleep(PAUSE_MS);
      await fault.strike(cluster, node, Math.floor(i / FAULTS.length));
      struck.set(fault.name, (struck.get(fault.name) ?? 0) + 1);
    }
  } finally {
    await stream.stop();
  }
  const all = Array.from(struck, ([name, count]) => `${name} ${count}`);
  return `in ${((Date.now() - started) / 1000).toFixed(0)} s: ${all.join(', ')}`;
}

/** Has pods come and go on all nodes. What the API server does not hear is left out. */
function startStream({ kubectl, nodes }: Cluster, namespace: string): { stop(): Promise<void> } {
  const draws = new Random(Date.now());
  let isOver = false;
  const running = (async () => {
    while (!isOver) {
      const { place } = draws.pick(nodes);
      const wanted = [`deployment/${place.name}`, `--replicas=${draws.int(0, MOST_PODS)}`];
      await kubectl.try('scale', '-n', namespace, ...wanted).catch(() => undefined);
      await Bun.sleep(500 + 2500 * draws.next());
    }
  })();
  return {
    async stop() {
      isOver = true;
      await running;
    },
  };
}

async function scale({ kubectl, nodes }: Cluster, namespace: string, replicas: number): Promise<void> {
  const all = nodes.map(({ place }) => `deployment/${place.name}`);
  await kubectl('scale', '-n', namespace, ...all, `--replicas=${replicas}`);
}

/** Waits until some pods run on each node, and the API server names exactly the addresses that they have. */
async function untilCalm(cluster: Cluster, namespace: string): Promise<void> {
  const { kubectl, nodes } = cluster;
  await scale(cluster, namespace, CALM_PODS);
  await untilPods(cluster, namespace, CALM_PODS * nodes.length, 240);
  await awaiting('network-status as it is in the pods', 60, async () => {
    const all = await kubectl.list('pods', '-n', namespace);
    for (const node of nodes) {
      const { name } = node.place;
      const reported = all.filter(({ spec }) => spec.nodeName === name).flatMap(reportedOf);
      const used = usedOn(node, WATCHED);
      must(
        used.length === CALM_PODS * ADDRESSES_OF_POD && reported.sort().join() === used.sort().join(),
        `network-status on ${name} has ${reported.join(' ')}, its pods have ${used.join(' ')}`,
      );
    }
    return true;
  });
}

function reportedOf({ metadata }: Row): string[] {
  const status: Row[] = JSON.parse(metadata.annotations[STATUS] ?? '[]');
  return status.flatMap(({ ips }) => (ips ?? []) as string[]).filter(WATCHED.isOfPool);
}

/** Waits until no lease is left, and daemons that start again have completed what was begun and given back single addresses. */
async function untilNoneIsLost(cluster: Cluster): Promise<void> {
  await awaiting('the leases to go', 60, async () => {
    const left = leasesOf(cluster, WATCHED);
    must(left.length === 0, `${left.length} leases are left: ${left.join(', ')}`);
    return true;
  });
  await Promise.all(cluster.nodes.map(({ machine }) => restartDaemon(machine)));
  await awaiting('nodes and API server to agree', 150, async () => {
    const wrong = await findDisagreements(cluster, WATCHED);
    const [blocks = [], singles = []] = WATCHED.networks.map(network => blocksOf(cluster, network));
    // Empty blocks go back at the second look of a daemon, which is ten minutes after the first.
    must(
      wrong.length === 0 && singles.length === 0,
      `${wrong.join(', ') || 'nodes and API server agree'}; nodes hold ${[...blocks, ...singles].join(', ')}`,
    );
    return true;
  });
}

/** What containerd has written of the pods. */
function startsOf({ logs }: Cluster, namespace: string): string {
  const files = fs.globSync(`${logs}/node*-containerd-*.log`).map(file => fs.readFileSync(file, 'utf8'));
  const sum = (count: (log: string) => number) => files.reduce((all, log) => all + count(log), 0);
  const started = sum(log => sandboxTimes(log, namespace).started.length);
  const failed = sum(log => failedSandboxes(log, namespace));
  return `${started} pods with two networks of the pools, ${started * ADDRESSES_OF_POD} addresses; ${failed} more attempts failed`;
}

/** Removes what nodes keep of the networks: a block each, and the note of what is to be done about it. */
async function forget({ kubectl, nodes }: Cluster): Promise<void> {
  for (const kind of ['blocks', 'addresses', 'pools'])
    await kubectl('delete', `${kind}.catena.cni.cncf.io`, '--all', '--timeout=60s');
  for (const { machine } of nodes) {
    for (const network of WATCHED.networks)
      await machine.ok([
        'rm',
        '-r',
        `/var/lib/cni/networks/${network}`,
        `/var/lib/catena/upkeep/cluster/${network}`,
      ]);
  }
}
