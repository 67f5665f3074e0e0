// How does a pod lose all networks that its record names, without leaks?

import { type AttachmentRecord, findNetns, type Held, hold } from '../attachments/store.ts';
import type { Conflist } from '../chain/config/conflist.ts';
import { beginDel, endDel } from '../chain/records/delete-attachment.ts';
import { findRemembered } from '../chain/records/known-add.ts';
import { deleteNetwork } from '../chain/run/run.ts';
import { checkAttachment, holdCall, type Runtime } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { removeDeviceInfo } from './device-info.ts';
import { removeMultusNote } from './multus-note.ts';
import { endOrphanPlugins } from './orphan-plugins.ts';
import { inPods, type PodKey, type PodRecord, parsePod, recall, runtimeOf } from './record.ts';
import type { Runner } from './runner.ts';
import { listUnrecorded, recallCached } from './unrecorded.ts';

/**
 * Detaches a pod from every network on record, last first, even after one failed. A network's record is deleted when
 * its own DEL has succeeded, the pod's record with the last one. Today's configuration is not used. A pod without
 * a record has no networks. Waits while another process works on the pod.
 * @param netns path of the namespace; may be empty when it is gone
 * @param wanted decides from the record, with the lock held, whether the pod is to be detached at all
 * @throws CniError of the network that failed, or one that joins several; 11 while another process works on the pod
 */
export async function deletePod(
  runner: Runner,
  key: PodKey,
  netns: string,
  wanted?: (record: AttachmentRecord) => boolean,
): Promise<void> {
  const { podsDir, runtime } = runner;
  checkAttachment({ ...key, netns }, 'DEL', runtime);
  // With `wanted`, it is GC, which ends if it cannot have the lock or write to the note.
  const held = await hold(key, holdCall(inPods(podsDir, runtime), wanted ? 'remove' : 'del'));
  try {
    const { record } = held;
    if (wanted && !(record && wanted(record))) return;
    if (wanted) held.beginDel();
    else beginDel(held, runtime);
    // GC does not know that nothing is needed of an ADD that was cut off.
    if (record && !wanted) await endPluginsOf(held, runner);
    await deleteHeldPod(runner, key, held, netns);
  } finally {
    held.release();
  }
}

/** The same for a pod whose DEL has begun. If its record cannot be used, the result cache tells which networks exist. */
export async function deleteHeldPod(runner: Runner, key: PodKey, held: Held, netns: string): Promise<void> {
  await endDel(held, whatOf(key), () => deleteAll(runner, key, held, netns));
}

export function whatOf({ containerId }: Pick<PodKey, 'containerId'>): string {
  return `Cannot delete the networks of container "${containerId}"`;
}

/**
 * DEL of the first networks of a pod, up to a number, last first.
 * @param spared decides for each network whether it is left alone
 * @returns the errors of those that failed
 */
export async function deleteNetworks(
  runner: Pick<Runner, 'runtime' | 'endQuiet'>,
  pod: PodRecord,
  begun: number,
  netns: string,
  spared: (list: Conflist, id: AttachmentId) => Promise<boolean> = async () => false,
): Promise<unknown[]> {
  const runtime = runtimeOf(runner, pod);
  const errors: unknown[] = [];
  for (const network of pod.networks.slice(0, begun).toReversed()) {
    try {
      const { list, attachment } = recall(pod.record, network, netns);
      const id = { network: list.name, containerId: attachment.containerId, ifname: attachment.ifname };
      // An earlier attempt called DEL of all of them, so those without a record are already deleted.
      const isDeleted = pod.record.attempts > 0 && findRemembered(id, runtime) === undefined;
      if (!isDeleted && (await spared(list, id))) continue;
      if (!isDeleted) await deleteNetwork(list, attachment, runtime);
      removeDeviceInfo({ list, attachment });
    } catch (error) {
      errors.push(error);
    }
  }
  if (pod.machine) await runner.endQuiet?.([]);
  if (!errors.length) removeMultusNote({ ...pod, containerId: pod.record.containerId });
  return errors;
}

/** Ends plugins that an interrupted ADD left running: their result is no longer needed. */
async function endPluginsOf({ record, orphans }: Held, runner: Runner): Promise<void> {
  if (record === undefined || record.added || record.attempts > 0) return;
  const ifnames = findPod(runner, record)?.networks.map(({ ifname }) => ifname) ?? [];
  await endOrphanPlugins(orphans, ifnames);
}

async function deleteAll(runner: Runner, key: PodKey, held: Held, netns: string): Promise<unknown[]> {
  const pod = held.record && findPod(runner, held.record);
  if (pod === undefined) return deleteUnrecorded(runner, key, netns);
  const own = ownNetns(pod, netns, runner.runtime.env);
  return deleteNetworks(runner, pod, held.lastBegun(pod.networks.length) + 1, own);
}

/** A path at which the namespace of the ADD exists now; empty when it is gone, or of an earlier boot. */
export function ownNetns({ record }: PodRecord, given: string, env: Runtime['env']): string {
  const { netns } = record;
  const isOwn = (path: string) => findNetns(record, env, path) === 'same';
  if (given === '' || isOwn(given)) return given;
  return isOwn(netns) ? netns : '';
}

/** Undefined also for a record without networks; the result cache then has to tell which exist. */
function findPod(runner: Runner, record: AttachmentRecord): PodRecord | undefined {
  try {
    return parsePod(record);
  } catch (error) {
    if (!(error instanceof CniError && error.code === ErrorCode.decodingFailure)) throw error;
    runner.warn(`${error.message}; using the result cache instead`);
    return undefined;
  }
}

/** Deletes attachments that are in the result cache but not in a record: records get lost, and multus has none of ours. */
async function deleteUnrecorded(runner: Runner, key: PodKey, netns: string): Promise<unknown[]> {
  const errors: unknown[] = [];
  for (const one of listUnrecorded(runner, key.containerId)) {
    try {
      const network = recallCached(one, netns);
      await deleteNetwork(network.list, network.attachment, runner.runtime);
      removeDeviceInfo(network);
    } catch (error) {
      errors.push(error);
    }
  }
  if (!errors.length) removeMultusNote({ ...runner.runtime, containerId: key.containerId });
  return errors;
}
