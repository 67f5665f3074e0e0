// How does a pod lose all networks that its record names, without leaks, also if its record is lost or its runner has died?

import { forgetGeneration } from '../attachments/generation.ts';
import {
  type Held,
  type HeldKnown,
  type KnownAttachment,
  listAttachments,
  pastOf,
  tryHold,
} from '../attachments/store.ts';
import type { Conflist } from '../chain/config/conflist.ts';
import { beginDel, endDel, yieldToSuccessor } from '../chain/records/delete-attachment.ts';
import { findCached, findRemembered } from '../chain/records/known-add.ts';
import { type Recovery, type RecoveryScope, recover } from '../chain/records/recover.ts';
import { failuresOf } from '../chain/run/call-plugins.ts';
import { deleteNetwork } from '../chain/run/run.ts';
import { type ChainRuntime, checkAttachment, holdCall, type Runtime } from '../chain/run/runtime.ts';
import { type AttachmentId, toId } from '../cni/attachment.ts';
import { runDir } from '../cni/directories.ts';
import { type CniError, ErrorCode, orTell, toCniError } from '../cni/errors.ts';
import { removeDeviceInfo } from './devices.ts';
import {
  inPods,
  listPods,
  type PodKey,
  type PodRecord,
  parsePod,
  recall,
  removeMultusNote,
  runtimeOf,
  whyEnded,
  withPod,
} from './record.ts';
import type { Runner } from './runner.ts';

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
  wanted?: (record: KnownAttachment) => boolean,
): Promise<void> {
  const { runtime } = runner;
  checkAttachment({ ...key, netns }, 'DEL', runtime);
  // With `wanted`, it is GC, which ends if it cannot have the lock or write to the note.
  await withPod(runner, key, wanted ? 'remove' : 'del', async held => {
    const { record } = held;
    if (wanted && !(record && wanted(record))) return;
    if (wanted) held.beginDel();
    else beginDel(held, runtime);
    // GC does not know that nothing is needed of an ADD that was cut off.
    if (record && !wanted) await endPluginsOf(held, runner);
    await deleteHeldPod(runner, key, held, netns);
  });
}

/** The same for a pod whose DEL has begun. If its record cannot be used, the result cache tells which networks exist. */
export async function deleteHeldPod(runner: Runner, key: PodKey, held: Held, netns: string): Promise<void> {
  await endDel(held, whatOf(key), async () => {
    const pod = held.record && findPod(runner, held.record);
    if (pod === undefined) return deleteUnrecorded(runner, key, netns);
    const own = ownNetns(pod, netns, runner.runtime.env);
    return deleteNetworks(runner, pod, held.lastBegun(pod.networks.length) + 1, own);
  });
}

function whatOf({ containerId }: Pick<PodKey, 'containerId'>): string {
  return `Cannot delete the networks of container "${containerId}"`;
}

/**
 * DEL of the first networks of a pod, up to a number, last first.
 * @param spared decides for each network whether it is left alone
 * @returns the errors of those that failed
 */
async function deleteNetworks(
  runner: Pick<Runner, 'runtime' | 'endQuiet'>,
  pod: PodRecord,
  begun: number,
  netns: string,
  spared: (list: Conflist, id: AttachmentId) => Promise<boolean> = async () => false,
): Promise<unknown[]> {
  const runtime = runtimeOf(runner, pod);
  const errors = await failuresOf(pod.networks.slice(0, begun).toReversed(), async network => {
    const { list, attachment } = recall(pod.record, network, netns);
    const id = { network: list.name, containerId: attachment.containerId, ifname: attachment.ifname };
    // An earlier attempt called DEL of all of them, so those without a record are already deleted.
    const isDeleted = pod.record.attempts > 0 && findRemembered(id, runtime) === undefined;
    if (isDeleted) removeDeviceInfo({ list, attachment });
    else if (!(await spared(list, id))) await deleteOne({ list, attachment }, runtime);
  });
  if (pod.machine) errors.push(...(await failuresOf([[]], async none => runner.endQuiet?.(none))));
  if (!errors.length) removeMultusNote({ ...pod, containerId: pod.record.containerId });
  return errors;
}

/** DEL of one network, and what is known of its device. */
export async function deleteOne(network: ReturnType<typeof recall>, runtime: ChainRuntime): Promise<void> {
  await deleteNetwork(network.list, network.attachment, runtime);
  removeDeviceInfo(network);
}

/** Ends plugins that an interrupted ADD left running: their result is no longer needed. */
async function endPluginsOf(held: Held, runner: Runner): Promise<void> {
  const { record } = held;
  if (record === undefined || record.added || record.attempts > 0) return;
  await held.endOrphanAdds(findPod(runner, record)?.networks.map(({ ifname }) => ifname) ?? []);
}

/** A path at which the namespace of the ADD exists now; empty when it is gone, or of an earlier boot. */
export function ownNetns({ record }: PodRecord, given: string, env: Runtime['env']): string {
  const { netns } = record;
  const past = pastOf(record, env);
  const isOwn = (path: string) => past.netns(path) === 'same';
  if (given === '' || isOwn(given)) return given;
  return isOwn(netns) ? netns : '';
}

/** Undefined also for a record without networks; the result cache then has to tell which exist. */
function findPod(runner: Runner, record: KnownAttachment): PodRecord | undefined {
  const tell = ({ message }: CniError) => runner.warn(`${message}; using the result cache instead`);
  return orTell(tell, () => parsePod(record), [ErrorCode.decodingFailure]);
}

/** Deletes attachments that are in the result cache but not in a record: records get lost, and multus has none of ours. */
async function deleteUnrecorded(runner: Runner, key: PodKey, netns: string): Promise<unknown[]> {
  const unrecorded = listUnrecorded(runner, key.containerId);
  const del = async (one: KnownAttachment) => deleteOne(recall(one, one, netns), runner.runtime);
  const errors = await failuresOf(unrecorded, del);
  if (!errors.length) removeMultusNote({ ...runner.runtime, containerId: key.containerId });
  return errors;
}

// Records get lost, and multus, in whose place the runner is, kept none of ours. What it attached is in the result cache.

/** The networks of a container that are in the result cache with their configuration, and in no record of a pod. @throws CniError 5 */
export function listUnrecorded(runner: Runner, containerId: string): KnownAttachment[] {
  const { attachments, damaged } = listAttachments({ cacheDir: runner.runtime.cacheDir }, { containerId });
  for (const problem of damaged) runner.warn(problem.message);
  if (!attachments.length) return [];
  const recorded = listPods(runner.podsDir)
    .pods.filter(({ record }) => record.containerId === containerId)
    .flatMap(({ networks }) => networks);
  const isRecorded = (one: KnownAttachment) =>
    recorded.some(({ network, ifname }) => network === one.network && ifname === one.ifname);
  return attachments.filter(one => one.source !== '' && !isRecorded(one));
}

/**
 * Deletes the networks of pods: those with an operation that began and never ended because its runner died, those whose DEL failed, and those
 * of an earlier boot; and, if all are asked for, the records that are all there is of a pod. Never throws: the record of a pod that could not be
 * deleted is kept for the next attempt.
 */
export async function recoverPods(
  podsDir: string,
  scope: RecoveryScope,
  runtime: ChainRuntime,
): Promise<Recovery[]> {
  const own = inPods(podsDir, runtime);
  const recovered = await recover(scope, own, deleteByRecord);
  if (!scope.all) return recovered;
  try {
    return [...recovered, ...listPods(podsDir, scope.network).pods.flatMap(pod => forgetEnded(pod, own))];
  } catch (error) {
    runtime.onWarning?.(toCniError(error));
    return recovered;
  }
}

/** Removes the record of a pod of which nothing else is left, and the notes and files beside it that only its DEL would have removed. */
function forgetEnded({ record }: PodRecord, runtime: ChainRuntime & Record<'stateDir', string>): Recovery[] {
  const { network, containerId, ifname } = record;
  const held = tryHold(record, holdCall(runtime, 'del'));
  if ('holder' in held) return [];
  try {
    if (!held.record) return [];
    const pod = parsePod(held.record);
    const why = whyEnded(pod, runtime.env);
    if (why === undefined) return [];
    held.beginDel();
    for (const one of pod.networks) removeDeviceInfo(recall(record, one, ''));
    for (const one of [{ network, ifname }, ...pod.networks])
      forgetGeneration(runDir(runtime.env), { network: one.network, ifname: one.ifname, containerId });
    removeMultusNote({ ...pod, containerId });
    held.drop();
    return [{ ...toId(record), why }];
  } finally {
    held.release();
  }
}

function deleteByRecord(held: HeldKnown, runtime: ChainRuntime): Promise<boolean> {
  const { record } = held;
  return endDel(held, whatOf(record), () => {
    const pod = parsePod(record);
    // The pod's own record says where its networks are recorded.
    const runner = { runtime: { ...runtime, stateDir: pod.stateDir, cacheDir: pod.cacheDir } };
    const begun = held.lastBegun(pod.networks.length) + 1;
    const netns = ownNetns(pod, record.netns, runtime.env);
    return deleteNetworks(runner, pod, begun, netns, (list, id) => isAttachedAgain(list, id, pod, runtime));
  });
}

/**
 * Whether another runtime has given the pod this network again since. Then the attachment stays, and only our record of it is
 * deleted: plugins would find by the same names what that runtime has made.
 */
async function isAttachedAgain(
  list: Conflist,
  id: AttachmentId,
  { record, stateDir, cacheDir }: PodRecord,
  runtime: ChainRuntime,
): Promise<boolean> {
  const within = { ...runtime, stateDir, cacheDir };
  const held = tryHold(id, holdCall(within, 'del'));
  if ('holder' in held) return false;
  try {
    if (held.known) return await yieldToSuccessor(held.known, within);
  } finally {
    held.release();
  }
  const { onWarning: _, ...quiet } = within;
  if (findCached(id, quiet)) return true;
  if (pastOf(record, runtime.env).kind !== 'outlived') return false;
  const witness = await runtime.openWitness?.();
  return (await witness?.findLife(list, id)) !== undefined;
}
