// Does a virtual machine move to a pod, and when has it arrived?
//
// KubeVirt moves a machine to a second pod, and both run for a while. The networks of the second that ask for the machine's own addresses
// are quiet until the first pod has ended, or the second is told to be the active one. A daemon looks, so without one nothing moves:
// the ADD fails with code 11 as long as the address is in use.

import { compareNetns } from '../attachments/netns-identity.ts';
import { isKnown, readRecord } from '../attachments/store.ts';
import { hold } from '../chain/records/hold.ts';
import { argOf, podNamedIn } from '../cni/cni-args.ts';
import type { Pod } from './options.ts';
import { inPods, type PodKey, parsePod, renderPod } from './record.ts';
import type { Runner } from './runner.ts';
import type { Selection } from './selection.ts';

/** KubeVirt sets it on every pod of a machine. */
const MACHINE_ANNOTATION = 'kubevirt.io/domain';

/**
 * Whether a machine moves to this pod, and has not arrived.
 * @param annotations of the pod, if they are known: those of other pods cost no request
 * @throws CniError 11 when the cluster cannot be reached
 */
export async function isMovingTo(
  { cluster }: Runner,
  pod: Pod,
  annotations: Readonly<Record<string, string>> = { [MACHINE_ANNOTATION]: '' },
): Promise<boolean> {
  const place = podNamedIn(pod);
  if (!cluster || place === undefined || annotations[MACHINE_ANNOTATION] === undefined) return false;
  const { namespace, name } = place;
  const api = await cluster();
  // Not as a watch knows it: this decides who speaks.
  const found = await api.findPod(namespace, name);
  if (!found?.machine?.isTarget || found.machine.isActive) return false;
  if (found.uid !== (argOf(pod, 'K8S_POD_UID') || found.uid)) return false;
  const others = await api.findPodsOfMachine(namespace, found.machine.uid);
  return others.some(({ uid, isOver }) => uid !== found.uid && !isOver);
}

/** Whether a network has what belongs to the machine, and not to its pod. */
export function isOfMachine({ claim, capabilityArgs: { ips, mac } }: Selection): boolean {
  return claim !== undefined || ips !== undefined || mac !== undefined;
}

/** Lets the networks of a pod speak to which a machine was moving, once it has arrived. @throws CniError 11 as {@link isMovingTo} */
export async function endMove(runner: Runner, key: PodKey, pod: Pod): Promise<void> {
  const record = readRecord(runner.podsDir, key);
  const isThere = record?.phase === 'attached' && compareNetns(pod.netns, record) === 'same';
  if (!isThere || parsePod(record).moving === undefined || (await isMovingTo(runner, pod))) return;
  const held = await hold(key, inPods(runner.podsDir, runner.runtime), 'add');
  try {
    if (!isKnown(held) || held.record.phase !== 'attached') return;
    const { moving, ...contents } = parsePod(held.record);
    if (moving === undefined) return;
    await runner.endQuiet?.(moving.ifnames);
    held.restate(renderPod(contents));
  } finally {
    held.release();
  }
}
