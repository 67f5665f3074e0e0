// Does every pod reach every pod over the nodes, with addresses of the cluster's pool and routes by the daemon alone?

import type { Row } from '../../helpers/netns.ts';
import { awaiting } from '../awaiting.ts';
import { type Cluster, isReady } from '../cluster.ts';
import { ALL_AT_ONCE } from '../install-catena.ts';
import type { Node } from '../node.ts';
import { inPod, must, pod, type Scenario, untilPods } from '../scenario.ts';
import { NETWORKS, STATUS } from './definitions.ts';

const SETTINGS = '/etc/cni/net.d/catena.d/daemon.json';
const KUBECONFIG = '/etc/cni/net.d/catena.d/kubeconfig';
const POOL = { ipv4: '10.64.0.0/16', ipv6: 'fd64::/112' };
const DAEMON_SET = ['daemonset', '-n', 'kube-system', 'catena'];

/** A network with both families, whose pods reach those of other nodes by a route to the whole pool. */
function definition(namespace: string): Row {
  const ipam = {
    type: 'cluster',
    kubeconfig: KUBECONFIG,
    ...{ pool: 'between', subnets: [POOL], blockSize: 16, lowWater: 0, coolDown: 0 },
    routes: [{ dst: POOL.ipv4 }, { dst: POOL.ipv6 }],
  };
  const bridge = { type: 'bridge', bridge: 'br-between', isGateway: true, mtu: 'auto', ipam };
  const config = { cniVersion: '1.1.0', name: 'between', plugins: [bridge] };
  return {
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: { name: 'between', namespace },
    spec: { config: JSON.stringify(config) },
  };
}

export const between: Scenario = {
  name: 'routes between nodes',
  // The bridge, and what the node holds of the pool.
  endsCatena: true,
  async play(cluster, namespace, saw) {
    const { kubectl } = cluster;
    const beyond = await cluster.join();
    const near = cluster.nodes.slice(0, 2);
    const nodes = [...near, beyond];
    let isGone = false;
    let command: readonly string[] | undefined;
    try {
      command = await setDaemons(cluster, [...cluster.nodes, beyond], undefined);
      await kubectl.apply(
        definition(namespace),
        ...nodes.map(({ place }) =>
          pod(`on-${place.name}`, {
            metadata: { namespace, annotations: { [NETWORKS]: 'between' } },
            spec: { nodeName: place.name },
          }),
        ),
      );
      const first = await untilPods(cluster, namespace, nodes.length, 180);
      await untilAllReach(cluster, nodes, first);
      saw(
        `${pairs(first)} pairs of pods on ${near.length} nodes of one subnet and one beyond a router: IPv4 and IPv6`,
      );
      const routes = await routesOf(near[0] ?? beyond);
      must(
        routes.some(line => line.includes('catena-vxlan')) &&
          routes.some(line => line.includes('via 10.210.')),
        `node1 has no route of both kinds: ${routes.join('; ')}`,
      );
      saw('node1 reaches its neighbour directly, and the other through VXLAN');

      const ids = new Set(first.map(idOf));
      await beyond.reboot();
      const again = await awaiting('the pod after the reboot', 180, async () => {
        const pods = await kubectl.list('pods', '-n', namespace);
        const isBack = pods.some(one => isOn(one, beyond) && isReady(one) && !ids.has(idOf(one)));
        return isBack && pods.every(isReady) && pods;
      });
      await untilAllReach(cluster, nodes, again);
      saw(`the same after ${beyond.place.name} was rebooted`);

      await beyond.close();
      isGone = true;
      const name = `on-${beyond.place.name}`;
      await kubectl('delete', 'pod', '-n', namespace, name, '--force', '--grace-period=0');
      await kubectl('delete', 'node', beyond.place.name);
      await awaiting('the tunnels to go', 60, async () => {
        const left = await Promise.all(near.map(routesOf));
        return left.every(lines => {
          const tunnelled = lines.filter(line => line.includes('catena-vxlan'));
          // The nodes have no IPv6 addresses, so IPv6 goes through the tunnel between neighbours, too.
          return tunnelled.length < near.length && tunnelled.every(line => line.includes('::'));
        });
      });
      await untilAllReach(
        cluster,
        near,
        again.filter(one => !isOn(one, beyond)),
      );
      saw('after its removal no route to it is left, and the others reach each other');
    } finally {
      if (!isGone) {
        await beyond.close();
        await kubectl('delete', 'node', beyond.place.name);
      }
      await kubectl('delete', 'pod', '-n', namespace, '--all', '--timeout=60s');
      if (command) await setDaemons(cluster, cluster.nodes, command);
      for (const kind of ['blocks', 'pools'])
        await kubectl('delete', `${kind}.catena.cni.cncf.io`, '--all', '--timeout=60s');
      for (const { machine } of near) {
        await machine.run(['rm', '-r', '/var/lib/cni/networks/between']);
        await machine.run(['ip', 'link', 'delete', 'br-between']);
      }
    }
  },
};

/**
 * Gives the daemons settings by which they keep routes; with a command, the former one again, and what they kept goes.
 * @returns the former command
 */
async function setDaemons(
  { kubectl }: Cluster,
  nodes: readonly Node[],
  former: readonly string[] | undefined,
): Promise<readonly string[]> {
  for (const { machine } of nodes) {
    machine.write(SETTINGS, JSON.stringify(former ? {} : { nodes: 'blocks', nodesKubeconfig: KUBECONFIG }));
    if (former === undefined) continue;
    await awaiting('the routes to go', 60, async () => {
      const { stdout } = await machine.run(['ip', 'route', 'show', 'proto', '67']);
      return stdout.trim() === '';
    });
  }
  const found = await kubectl.get(...DAEMON_SET);
  const command: string[] = found.spec.template.spec.containers[0].command;
  const value = former ?? [...command, '--config', SETTINGS];
  const patch = [{ op: 'replace', path: '/spec/template/spec/containers/0/command', value }, ALL_AT_ONCE];
  await kubectl('patch', ...DAEMON_SET, '--type=json', '-p', JSON.stringify(patch));
  await awaiting('the daemons with other settings', 180, async () => {
    const { status, metadata } = await kubectl.get(...DAEMON_SET);
    return (
      status.observedGeneration === metadata.generation &&
      status.updatedNumberScheduled === status.desiredNumberScheduled &&
      status.numberReady >= nodes.length &&
      status.numberReady === status.desiredNumberScheduled
    );
  });
  const strategy = { ...ALL_AT_ONCE, value: found.spec.updateStrategy };
  await kubectl('patch', ...DAEMON_SET, '--type=json', '-p', JSON.stringify([strategy]));
  if (former) for (const { machine } of nodes) await machine.ok(['rm', SETTINGS]);
  return command;
}

/** Waits until each pod has an answer from each other one, over both families. */
async function untilAllReach(cluster: Cluster, nodes: readonly Node[], pods: readonly Row[]): Promise<void> {
  const withNodes = { ...cluster, nodes };
  const addresses = pods.map(one => {
    const status: Row[] = JSON.parse(one.metadata.annotations[STATUS] ?? '[]');
    return (status.find(({ name }) => name.endsWith('/between'))?.ips ?? []) as string[];
  });
  must(
    addresses.every(ips => ips.length === 2),
    `the pods have not an address of each family: ${JSON.stringify(addresses)}`,
  );
  for (const [i, from] of pods.entries()) {
    for (const [j, ips] of addresses.entries()) {
      if (i === j) continue;
      for (const ip of ips) {
        await awaiting(`${from.metadata.name} to reach ${ip} of ${pods[j]?.metadata.name}`, 60, () =>
          inPod(withNodes, from, 'ping', '-n', '-c', '1', '-W', '2', ip).then(
            () => true,
            () => false,
          ),
        );
      }
    }
  }
}

async function routesOf({ machine }: Node): Promise<string[]> {
  const all = await Promise.all(
    ['-4', '-6'].map(family => machine.ok(['ip', family, 'route', 'show', 'proto', '67'])),
  );
  return all.flatMap(text => text.split('\n').filter(Boolean));
}

function isOn({ spec }: Row, { place }: Node): boolean {
  return spec.nodeName === place.name;
}

function idOf({ status }: Row): string {
  return status.containerStatuses?.[0]?.containerID;
}

function pairs(pods: readonly Row[]): number {
  return (pods.length * (pods.length - 1)) / 2;
}
