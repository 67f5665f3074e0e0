// Does every network of a pod get the device of its container, in the order of the containers, and is no device lost or given twice?

import fs from 'node:fs';
import { namesIn, tryRead } from '../../../src/files/read-file.ts';
import type { Row } from '../../helpers/netns.ts';
import { awaiting } from '../awaiting.ts';
import { type Cluster, isReady } from '../cluster.ts';
import { type Devices, nameOf, offerDevices, RESOURCES, type Resource } from '../device-plugin.ts';
import { FAULTS } from '../faults.ts';
import type { Node } from '../node.ts';
import { must, pod, type Scenario } from '../scenario.ts';
import { NETWORKS } from './definitions.ts';

/** In all, unless `--count` says otherwise. */
const PODS = 88;
/** At a time: each order once, or three times where there are many. A wave of 66 wants 102 devices of each resource. */
const AT_ONCE = 22;
const MANY_AT_ONCE = 66;
const MANY = 500;
/** Of each resource on a node. */
const EACH = 44;
/** Faults that come in turn, one in each wave; a reboot is one of them. */
const STRUCK = ['kubelet killed', 'node rebooted', 'daemon killed', 'API server killed'];
const STRUCK_AFTER_MS = 1500;
/** In a pod, with its own devices. */
const NET = '/sys/class/net';
const CONTAINERS = ['first', 'second'] as const;

/** The runner asks host-device, which knows devices of buses, for the one of this name. */
const NUMBERED = `#!/bin/sh
sed 's/"deviceID" *: *"\\([^"]*\\)"/"device":"\\1"/' | exec "$(dirname "$0")/host-device"
`;

/** What each container asks for, and the networks: every order of both. */
const ORDERS = [['red', 'blue'], ['red'], ['blue']]
  .flatMap((first, _, all) => all.map(second => [first, second] as Resource[][]))
  .filter(containers => new Set(containers.flat()).size === 2)
  .flatMap(containers => permutations(containers.flat()).map(networks => ({ containers, networks })));

export const devices: Scenario = {
  name: 'devices of a plugin',
  // A node boots in it, which takes the bridges of earlier scenarios.
  leaves: /^br-/,
  async play(cluster, namespace, saw, { count = PODS }) {
    const { kubectl, nodes } = cluster;
    await kubectl.apply(...(Object.keys(RESOURCES) as Resource[]).map(one => definitionOf(namespace, one)));
    const plugins = nodes.map(({ machine }) => machine.path('/opt/cni/bin/numbered'));
    for (const file of plugins) fs.writeFileSync(file, NUMBERED, { mode: 0o755 });
    const offered = new Map<Node, Devices>();
    const seen = { pods: 0, devices: 0, again: 0, refused: 0, forced: 0 };
    const struck = new Map<string, number>();
    try {
      for (const node of nodes) offered.set(node, await offerDevices(node, EACH));
      for (let wave = 0; seen.pods < count; wave++) {
        const size = Math.min(count < MANY ? AT_ONCE : MANY_AT_ONCE, count - seen.pods);
        const wanted = Array.from({ length: size }, (_, i) => podOf(namespace, seen.pods + i));
        const fault = FAULTS.find(({ name }) => name === STRUCK[wave % STRUCK.length]);
        const node = nodes[wave % nodes.length];
        const strike = async (): Promise<void> => {
          await Bun.sleep(STRUCK_AFTER_MS);
          if (fault && node) await fault.strike(cluster, node, wave);
          struck.set(fault?.name ?? '', (struck.get(fault?.name ?? '') ?? 0) + 1);
        };
        const isReboot = fault?.name === 'node rebooted';
        // During ADD in one wave, and during DEL in the next; a node reboots with its pods.
        const isDuringAdd = !isReboot && Math.floor(wave / STRUCK.length) % 2 === 0;
        const starting = isDuringAdd ? strike() : undefined;
        // What the API server does not hear is made later.
        await kubectl.apply(...wanted).catch(() => undefined);
        await starting;
        seen.devices += await untilGiven(cluster, namespace, wanted, offered, seen);
        if (isReboot) {
          await strike();
          seen.again += await untilGiven(cluster, namespace, wanted, offered, seen);
        }
        const isForced = wave % 2 === 1;
        const ending = isDuringAdd || isReboot ? undefined : strike();
        const how = isForced ? ['--grace-period=0', '--force'] : ['--wait=false'];
        await awaiting('the pods to be deleted', 60, async () => {
          return (await kubectl.try('delete', 'pod', '-n', namespace, '--all', ...how)) !== undefined;
        });
        await ending;
        await untilHome(cluster, namespace, offered);
        seen.pods += size;
        if (isForced) seen.forced += size;
        // A long run says how far it is.
        fs.writeSync(1, `    ${seen.pods} of ${count} pods, ${seen.devices} devices, ${fault?.name}\n`);
      }
    } finally {
      await kubectl.try('delete', 'pod', '-n', namespace, '--all', '--timeout=110s');
      for (const one of offered.values()) await one.close();
      for (const file of plugins) fs.rmSync(file, { force: true });
    }
    const faults = Array.from(struck, ([name, times]) => `${name} ${times}`).join(', ');
    saw(
      `${seen.pods} pods with two resources in two containers, ${ORDERS.length} orders of containers and networks, had ` +
        `${seen.devices} devices in the order of their containers, and ${seen.again} again after a reboot; none lost, none twice`,
    );
    saw(`${faults}; ${seen.forced} pods deleted by force; after each wave all devices are home as they were`);
    if (seen.refused)
      saw(`${seen.refused} pods were refused by a kubelet that had just started, and made again`);
  },
};

function permutations(of: readonly Resource[]): Resource[][] {
  if (of.length === 0) return [[]];
  const all = of.flatMap((one, i) => permutations(of.toSpliced(i, 1)).map(rest => [one, ...rest]));
  return [...new Map(all.map(one => [one.join(), one])).values()];
}

function definitionOf(namespace: string, resource: Resource): Row {
  const config = { cniVersion: '1.0.0', name: resource, plugins: [{ type: 'numbered' }] };
  return {
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: {
      name: resource,
      namespace,
      annotations: { 'k8s.v1.cni.cncf.io/resourceName': nameOf(resource) },
    },
    spec: { config: JSON.stringify(config) },
  };
}

function podOf(namespace: string, number: number): Row {
  const { containers, networks } = ORDERS[number % ORDERS.length] ?? { containers: [], networks: [] };
  const name = `pod${number}`;
  const made = pod(name, { metadata: { namespace, annotations: { [NETWORKS]: networks.join() } } });
  const [web] = made.spec.containers;
  made.spec.containers = containers.map((resources, i) => ({
    ...web,
    name: CONTAINERS[i],
    command: ['busybox', 'httpd', '-f', '-p', String(80 + i)],
    env: [
      { name: 'POD', value: `${namespace}/${name}` },
      { name: 'CONTAINER', value: CONTAINERS[i] },
    ],
    resources: { limits: Object.fromEntries(resources.map(one => [nameOf(one), '1'])) },
  }));
  return made;
}

/** Waits until every pod is ready, and throws unless each network has the device that its container was given. @returns how many */
async function untilGiven(
  { kubectl, nodes }: Cluster,
  namespace: string,
  wanted: readonly Row[],
  offered: ReadonlyMap<Node, Devices>,
  seen: { refused: number },
): Promise<number> {
  await awaiting(`${wanted.length} pods with devices`, 300, async () => {
    const all = await kubectl.list('pods', '-n', namespace);
    const refused = all
      .filter(({ status }) => status.phase === 'Failed')
      .map(({ metadata }) => metadata.name);
    if (refused.length) {
      seen.refused += refused.length;
      await kubectl('delete', 'pod', '-n', namespace, ...refused, '--grace-period=0', '--force');
    }
    const names = new Set(all.map(({ metadata }) => metadata.name));
    const missing = wanted.filter(
      ({ metadata }) => refused.includes(metadata.name) || !names.has(metadata.name),
    );
    if (missing.length) await kubectl.apply(...missing);
    must(
      all.every(isReady),
      `not ready: ${all.filter(one => !isReady(one)).map(({ metadata }) => metadata.name)}`,
    );
    return missing.length === 0;
  });
  // After a reboot, the API server may have pods as ready that are about to start.
  return awaiting('each network to have the device of its container', 180, async () => {
    const running = nodes.flatMap(node => runningOn(node, namespace, offered.get(node)));
    const byName = new Map(running.map(one => [one.pod, one]));
    must(byName.size === running.length, 'a pod runs twice');
    const given: string[] = [];
    for (const { metadata } of wanted) {
      const one = byName.get(`${namespace}/${metadata.name}`);
      const { containers = [], networks = [] } = one ?? {};
      const left = [...containers];
      const expected = String(metadata.annotations[NETWORKS])
        .split(',')
        .map(resource => {
          const at = left.findIndex(device => device.replace(/\d+$/, '') === resource);
          return left.splice(at, 1)[0];
        });
      must(
        expected.join() === networks.join() && left.length === 0,
        `${metadata.name} (${metadata.annotations[NETWORKS]}) was given ${containers}, and its networks have ${networks}`,
      );
      given.push(...networks.map(device => `${one?.node} ${device}`));
    }
    must(new Set(given).size === given.length, `given twice: ${given.join(', ')}`);
    return given.length;
  });
}

/** A pod that runs: devices that its containers were given, in their order, and those of its networks in theirs. */
interface Running {
  readonly node: string;
  readonly pod: string;
  readonly containers: readonly string[];
  readonly networks: readonly string[];
}

function runningOn({ machine, place }: Node, namespace: string, offered: Devices | undefined): Running[] {
  const named = new Map(Array.from(offered?.all ?? [], ([name, mac]) => [mac, name]));
  const proc = machine.path('/proc');
  const found = new Map<string, Row>();
  for (const pid of namesIn(proc).filter(name => /^\d+$/.test(name))) {
    const text = tryRead(`${proc}/${pid}/environ`) ?? '';
    const env: Row = Object.fromEntries(text.split('\0').map(line => line.split('=', 2)));
    if (!env.CONTAINER || !String(env.POD).startsWith(`${namespace}/`)) continue;
    const net = `${proc}/${pid}/root${NET}`;
    const names = namesIn(net)
      .filter(name => name.startsWith('net'))
      .sort();
    const networks = names.map(name => named.get(tryRead(`${net}/${name}/address`)?.trim() ?? '') ?? 'none');
    const key = `${fs.readlinkSync(`${proc}/${pid}/ns/net`)} ${env.POD}`;
    const one = found.get(key) ?? { pod: env.POD, networks };
    // The kubelet puts no order into the devices of one container.
    found.set(key, { ...one, [env.CONTAINER]: [env.RED, env.BLUE].filter(Boolean) });
  }
  return Array.from(found.values(), one => ({
    node: place.name,
    pod: one.pod,
    networks: one.networks,
    containers: CONTAINERS.flatMap(name => one[name] ?? []),
  }));
}

async function untilHome(
  { kubectl }: Cluster,
  namespace: string,
  offered: ReadonlyMap<Node, Devices>,
): Promise<void> {
  await awaiting('all devices to be home', 240, async () => {
    const left = await kubectl.list('pods', '-n', namespace);
    must(left.length === 0, `${left.length} pods are left`);
    for (const [{ place }, one] of offered) {
      const away = await one.away();
      must(away.length === 0, `away from ${place.name}: ${away.join(', ')}`);
    }
    return true;
  });
}
