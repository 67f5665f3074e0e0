// Do pods get the networks of NetworkAttachmentDefinitions, in both forms of the annotation, and is their status reported?

import type { Row } from '../../helpers/netns.ts';
import { inPod, must, pod, type Scenario, untilPods, untilRefused } from '../scenario.ts';

/** Which networks a pod wants. */
export const NETWORKS = 'k8s.v1.cni.cncf.io/networks';
/** Which it has. */
export const STATUS = 'k8s.v1.cni.cncf.io/network-status';

/** A network of one node. @param label is in the name of its bridge */
export function definition(namespace: string, name: string, subnet: number, label = name): Row {
  const config = {
    cniVersion: '1.0.0',
    name: label,
    plugins: [
      {
        type: 'bridge',
        bridge: `br-${label}`,
        capabilities: { ips: true, mac: true },
        ipam: { type: 'host-local', subnet: `10.${subnet}.0.0/24` },
      },
    ],
  };
  return {
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: { name, namespace },
    spec: { config: JSON.stringify(config) },
  };
}

export const definitions: Scenario = {
  name: 'network attachment definitions',
  leaves: /^br-(lan|store)$/,
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const nodeName = nodes[0]?.place.name;
    await kubectl.apply(definition(namespace, 'lan', 60), definition(namespace, 'store', 61));
    const json = [
      { name: 'lan', interface: 'lan0', ips: ['10.60.0.77/24'], mac: '02:00:00:00:60:77' },
      { name: 'store', namespace },
    ];
    const annotated = (name: string, networks: string) =>
      pod(name, { metadata: { namespace, annotations: { [NETWORKS]: networks } }, spec: { nodeName } });
    await kubectl.apply(
      annotated('short', `lan@lan0,${namespace}/store`),
      annotated('json', JSON.stringify(json)),
    );
    const found = await untilPods(cluster, namespace, 2);
    for (const one of found) {
      const { metadata, status } = one;
      const reported: Row[] = JSON.parse(metadata.annotations[STATUS] ?? '[]');
      const names = reported.map(({ name, interface: device }) => `${name}@${device}`).join();
      must(
        names === `default@eth0,${namespace}/lan@lan0,${namespace}/store@net2`,
        `the status of ${metadata.name} names ${names}`,
      );
      must(
        reported[0]?.ips[0] === status.podIP,
        `the status says ${reported[0]?.ips}, the pod ${status.podIP}`,
      );
      for (const { interface: device, ips, mac } of reported) {
        const shown = await inPod(cluster, one, 'ip', 'addr', 'show', device);
        must(shown.includes(`${ips[0]}/`), `${device} of ${metadata.name} has not ${ips[0]}: ${shown}`);
        must(
          mac === undefined || shown.includes(mac),
          `${device} of ${metadata.name} has not ${mac}: ${shown}`,
        );
      }
    }
    const status =
      found.find(({ metadata }) => metadata.name === 'json')?.metadata.annotations[STATUS] ?? '[]';
    const [, lan] = JSON.parse(status);
    must(
      lan?.ips?.[0] === '10.60.0.77' && lan.mac === '02:00:00:00:60:77',
      `the address and hardware address asked for are not there: ${JSON.stringify(lan)}`,
    );
    const short = found.find(({ metadata }) => metadata.name === 'short') ?? {};
    await inPod(cluster, short, 'ping', '-c', '3', '-W', '2', '10.60.0.77');
    saw('both forms: 3 networks each, network-status as in the pod, requested address and hardware address');
    await kubectl.apply(annotated('unknown', 'nowhere'));
    const said = await untilRefused(cluster, namespace, 'unknown');
    must(said.includes('nowhere'), `the event of the refused pod says: ${said}`);
    saw(`a pod that names an unknown network: ${said.replace(/^.* failed \(add\): /, '').slice(0, 240)}`);
    await kubectl('delete', 'pod', '-n', namespace, '--all', '--timeout=110s');
  },
};
