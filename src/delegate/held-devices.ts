// Has another pod of the node a device that is about to be given to a pod?
//
// The kubelet may give a device to the next pod while the networks of the one before are still being detached. Whose record names
// the device, has it.
import { CniError, ErrorCode } from '../cni/errors.ts';
import { ownNetns } from './delete.ts';
import type { PlannedNetwork } from './plan.ts';
import { listPods, type PodKey, type PodRecord } from './record.ts';
import type { Runner } from './runner.ts';

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
