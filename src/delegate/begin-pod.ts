// How does the ADD of a pod begin, which devices may it not have, and what commits it?
import type { Held } from '../attachments/store.ts';
import type { Conflist } from '../chain/config/conflist.ts';
import { intentOf } from '../chain/records/recover.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { CURRENT_VERSION } from '../cni/result.ts';
import type { NetworkStatus } from './cluster.ts';
import { ownNetns } from './delete.ts';
import type { PlannedNetwork } from './plan.ts';
import {
  inPods,
  listPods,
  type PodContents,
  type PodKey,
  type PodRecord,
  type RecordedNetwork,
  renderPod,
  writeMultusNote,
} from './record.ts';
import type { Runner } from './runner.ts';
import { NETWORKS_ANNOTATION } from './selection.ts';

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

// The kubelet may give a device to the next pod while the networks of the one before are still being detached. Whose record names
// the device, has it.

/**
 * Refuses a device that a record of another pod names, if that pod's namespace still exists. To be called once the pod's own record
 * names its devices, so that of two pods at least one sees the other.
 * @throws CniError 11
 */
export function refuseHeldDevices(runner: Runner, key: PodKey, networks: readonly PlannedNetwork[]): void {
  const wanted = networks.filter(({ device }) => device !== undefined);
  if (wanted.length === 0) return;
  const isOther = ({ record }: PodRecord) =>
    record.containerId !== key.containerId || record.network !== key.network || record.ifname !== key.ifname;
  const others = listPods(runner.podsDir).pods.filter(pod => isOther(pod));
  for (const { device, label } of wanted) {
    const holder = others.find(
      pod =>
        pod.networks.some(
          one => one.device?.id === device?.id && one.device?.resource === device?.resource,
        ) && ownNetns(pod, pod.record.netns, runner.runtime.env) !== '',
    );
    if (holder === undefined) continue;
    throw new CniError(
      ErrorCode.tryAgainLater,
      `Cannot give device "${device?.id}" to network "${label}": container "${holder.record.containerId}" still has it`,
      { details: `recorded in "${holder.record.file}"; its DEL frees the device` },
    );
  }
}
