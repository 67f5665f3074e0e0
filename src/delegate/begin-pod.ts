// How does the ADD of a pod begin, and what commits it?

import type { Held } from '../attachments/store.ts';
import type { Conflist } from '../chain/config/conflist.ts';
import { intentOf } from '../chain/records/transaction.ts';
import { defined } from '../cni/json.ts';
import { CURRENT_VERSION } from '../cni/result.ts';
import { NETWORKS_ANNOTATION } from './annotation.ts';
import type { NetworkStatus } from './cluster.ts';
import { writeMultusNote } from './multus-note.ts';
import type { PlannedNetwork } from './plan.ts';
import { inPods, type PodContents, type PodKey, type RecordedNetwork, renderPod } from './record.ts';
import type { Runner } from './runner.ts';

/**
 * Begins the ADD of a pod whose networks are about to be attached.
 * @returns to be called when all are, with what was published of each: commits it, or throws CniError 5
 * @throws CniError 5
 */
export function beginPod(
  { runtime, podsDir, follow, isSharedWithMultus }: Runner,
  { network, containerId, ifname, netns }: PodKey & { readonly netns: string },
  networks: readonly PlannedNetwork[],
  annotations: Readonly<Record<string, string>>,
  machine: PodContents['machine'],
  held: Held,
): (statuses: readonly NetworkStatus[]) => void {
  const { cacheDir, stateDir } = runtime;
  const contents: Omit<PodContents, 'kind'> = {
    cacheDir,
    stateDir,
    networks: networks.map(toRecordedNetwork),
    ...(follow && { follow: { annotation: annotations[NETWORKS_ANNOTATION] ?? '', call: follow } }),
    ...defined({ machine }),
  };
  if (isSharedWithMultus) writeMultusNote({ cacheDir, containerId }, contents.networks);
  const pod = { ...NO_LIST, name: network, source: renderPod(contents) };
  held.beginAdd(intentOf(pod, { containerId, ifname, netns }, inPods(podsDir, runtime), []), false);
  return statuses => {
    const attached = contents.networks.map((one, index) => ({ ...one, status: { ...statuses[index] } }));
    held.commit({ source: renderPod({ ...contents, networks: attached }), result: undefined });
  };
}

/** What the record keeps of a network. */
export function toRecordedNetwork({
  label,
  list,
  attachment,
  device,
  asked,
}: PlannedNetwork): RecordedNetwork {
  return {
    label,
    network: list.name,
    ifname: attachment.ifname,
    source: list.source,
    args: (attachment.args ?? []).map(([name, value]) => [name, value]),
    capabilityArgs: attachment.capabilityArgs ?? {},
    ...defined({ device: device && { ...device }, asked }),
  };
}

const NO_LIST = {
  version: CURRENT_VERSION,
  disableCheck: false,
  disableGC: false,
  plugins: [],
} satisfies Partial<Conflist>;
