// How are the networks of pods deleted whose runner has died?

import { type HeldKnown, isKnown, pastOf, tryHold } from '../attachments/store.ts';
import type { Conflist } from '../chain/config/conflist.ts';
import { endDel, findSuccessor, yieldToSuccessor } from '../chain/records/delete-attachment.ts';
import { findCached, findRecord } from '../chain/records/known-add.ts';
import { type Recovery, type RecoveryScope, recover } from '../chain/records/recover.ts';
import { type ChainRuntime, holdCall } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { deleteNetworks, ownNetns, whatOf } from './delete.ts';
import { inPods, type PodRecord, parsePod } from './record.ts';

/**
 * Deletes the networks of pods: those with an operation that began and never ended because its runner died, those whose DEL failed, and those
 * of an earlier boot. Never throws: the record of a pod that could not be deleted is kept for the next attempt.
 */
export function recoverPods(
  podsDir: string,
  scope: RecoveryScope,
  runtime: ChainRuntime,
): Promise<Recovery[]> {
  return recover(scope, inPods(podsDir, runtime), deleteByRecord);
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
  const own = findRecord(id, within);
  if (own === undefined) {
    const { onWarning: _, ...quiet } = within;
    if (findCached(id, quiet)) return true;
    if (pastOf(record, runtime.env).kind !== 'outlived') return false;
    const witness = await runtime.openWitness?.();
    return (await witness?.findLife(list, id)) !== undefined;
  }
  if ((await findSuccessor(own, within)) === undefined) return false;
  const held = tryHold(id, holdCall(within, 'del'));
  if ('holder' in held) return false;
  try {
    return isKnown(held) && (await yieldToSuccessor(held, within));
  } finally {
    held.release();
  }
}
