// How does Catena get onto the nodes, and away again? By the commands of the manual, with an account.

import fs from 'node:fs';
import { BIN_DIR } from '../helpers/plugin.ts';
import { awaiting } from './awaiting.ts';
import { type Cluster, isReady } from './cluster.ts';
import { CLAIMS, DEFINITIONS } from './kinds.ts';
import { inShell, manual } from './manual.ts';
import type { Node } from './node.ts';

/** The release of the cluster, as the command takes it. */
const RELEASE = '--kubernetes 1.20';
const PODS = ['pods', '-n', 'kube-system', '-l', 'app.kubernetes.io/name=catena'];

/** A change of the DaemonSet by which its pods are replaced side by side: where it does not matter how an upgrade goes. */
export const ALL_AT_ONCE = {
  op: 'replace',
  path: '/spec/updateStrategy',
  value: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '100%' } },
} as const;

/** Applies the kinds and the manifest, and waits until Catena's pod of every node is ready. */
export async function installCatena(cluster: Cluster): Promise<void> {
  const { kubectl, control } = cluster;
  const dir = `${control.machine.lab.tmp}/install`;
  fs.mkdirSync(dir, { recursive: true });
  fs.writeFileSync(`${dir}/pods.conflist`, manual('pods.conflist'));
  await kubectl.apply(DEFINITIONS, CLAIMS);
  await kubectl.follow(manual('kinds', { executables: BIN_DIR, release: RELEASE }), dir);
  await kubectl.follow(manual('manifest', { executables: BIN_DIR, release: RELEASE }), dir);
  await untilInstalled(cluster);
}

/** Waits until Catena's pod of every node is ready. */
export async function untilInstalled({ kubectl, nodes }: Cluster, seconds = 180): Promise<void> {
  await awaiting('Catena on every node', seconds, async () => {
    const pods = await kubectl.list(...PODS);
    return pods.filter(isReady).length === nodes.length;
  });
}

/** Ends Catena's pods; nodes keep what they have installed. */
export async function removeCatena({ kubectl, control }: Cluster): Promise<void> {
  await kubectl.follow(manual('delete'), control.machine.lab.tmp);
  await awaiting('the pods of Catena to end', 120, async () => (await kubectl.list(...PODS)).length === 0);
}

/** The same, and removes from nodes all that they have left there. @returns what the command says on the last one */
export async function uninstallCatena(cluster: Cluster, nodes: readonly Node[]): Promise<string> {
  await removeCatena(cluster);
  let said = '';
  for (const { machine } of nodes) said = await machine.ok(inShell(manual('purge'), '/'));
  return said;
}
