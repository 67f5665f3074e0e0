// How does Catena get onto the nodes? The README's way: the printed DaemonSet with an account.

import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { runOk } from '../helpers/command.ts';
import type { Row } from '../helpers/netns.ts';
import { awaiting } from './awaiting.ts';
import { type Cluster, isReady } from './cluster.ts';

/** The pods' network: flannel's subnet of the node, ports and rates, and more networks by annotation. */
export const LIST: Row = {
  // containerd 1.6 refuses newer results. What knows 1.1.0, as our command, asks by STATUS.
  cniVersion: '1.0.0',
  cniVersions: ['1.0.0', '1.1.0'],
  name: 'pods',
  plugins: [
    {
      type: 'catena',
      kubeconfig: '/etc/cni/net.d/catena.d/kubeconfig',
      namespaceIsolation: true,
      capabilities: { portMappings: true, bandwidth: true, 'io.kubernetes.cri.pod-annotations': true },
      delegates: [
        {
          name: 'default',
          plugins: [
            { type: 'flannel', delegate: { bridge: 'cni0', hairpinMode: true, isDefaultGateway: true } },
            { type: 'portmap', capabilities: { portMappings: true } },
            { type: 'bandwidth', capabilities: { bandwidth: true } },
          ],
        },
      ],
    },
  ],
};

/** The resource of network definitions, as the multi-network specification has it. */
export const DEFINITIONS: Row = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'network-attachment-definitions.k8s.cni.cncf.io' },
  spec: {
    group: 'k8s.cni.cncf.io',
    scope: 'Namespaced',
    names: {
      plural: 'network-attachment-definitions',
      singular: 'network-attachment-definition',
      kind: 'NetworkAttachmentDefinition',
      shortNames: ['net-attach-def'],
    },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: { spec: { type: 'object', properties: { config: { type: 'string' } } } },
          },
        },
      },
    ],
  },
};

/** The resource of addresses that outlive pods. */
export const CLAIMS: Row = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'ipamclaims.k8s.cni.cncf.io' },
  spec: {
    group: 'k8s.cni.cncf.io',
    scope: 'Namespaced',
    names: { plural: 'ipamclaims', singular: 'ipamclaim', kind: 'IPAMClaim', listKind: 'IPAMClaimList' },
    versions: [
      {
        name: 'v1alpha1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: {
          openAPIV3Schema: {
            type: 'object',
            properties: {
              spec: {
                type: 'object',
                required: ['network', 'interface'],
                properties: { network: { type: 'string' }, interface: { type: 'string' } },
              },
              status: {
                type: 'object',
                required: ['ips'],
                properties: { ips: { type: 'array', items: { type: 'string' } } },
              },
            },
          },
        },
      },
    ],
  },
};

/** The manifest, as the command prints it. */
export async function printManifest(work: string): Promise<string> {
  const file = `${work}/pods.conflist`;
  fs.writeFileSync(file, JSON.stringify(LIST, null, 2));
  const options = [
    '--print',
    'daemonset',
    '--with-account',
    '--as-default',
    '--with-metrics',
    '--kubernetes',
    '1.20',
  ];
  return (await runOk([CATENA, 'install', ...options, file])).stdout;
}

/** Applies the manifest, and waits until Catena's pod of every node is ready. */
export async function installCatena(cluster: Cluster): Promise<void> {
  await cluster.kubectl.apply(DEFINITIONS, CLAIMS);
  await cluster.kubectl.apply(await printManifest(cluster.control.machine.lab.tmp));
  await untilInstalled(cluster);
}

/** Waits until Catena's pod of every node is ready. */
export async function untilInstalled({ kubectl, nodes }: Cluster, seconds = 180): Promise<void> {
  await awaiting('Catena on every node', seconds, async () => {
    const pods = await kubectl.list('pods', '-n', 'kube-system', '-l', 'app.kubernetes.io/name=catena');
    return pods.filter(isReady).length === nodes.length;
  });
}
