// How are the networks of pods deleted whose runner has died?

import type { Conflist } from '../chain/config/conflist.ts';
import { toRecorded } from '../chain/records/add-record.ts';
import {
  claimUnsettled,
  type DeleteUnsettled,
  type Recovery,
  type RecoveryScope,
  recover,
} from '../chain/records/recover.ts';
import { findRecord } from '../chain/records/remembered-add.ts';
import { findSuccessor, yieldToSuccessor } from '../chain/records/successor.ts';
import { joinErrors } from '../chain/run/plugin-errors.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { isOfEarlierBoot } from '../journal/boot.ts';
import { claimRecord } from '../journal/claim.ts';
import { lastBegun } from '../journal/lines.ts';
import { tryEntry } from '../journal/store.ts';
import { deleteNetworks, ownNetns } from './delete.ts';
import { type PodRecord, parsePod } from './record.ts';

/**
 * Deletes the networks of pods: those with an operation that began and never ended because its runner died, those whose DEL failed, and those
 * of an earlier boot. Never throws: the record of a pod that could not be deleted is kept for the next attempt.
 */
export function recoverPods(
  podsDir: string,
  scope: RecoveryScope,
  runtime: ChainRuntime,
): Promise<Recovery[]> {
  return recover(scope, { ...runtime, stateDir: podsDir }, deleteUnsettledPod);
}

const deleteUnsettledPod: DeleteUnsettled = async (id, runtime) => {
  const { env } = runtime;
  const claim = claimUnsettled(id, runtime);
  if (claim === undefined) return false;
  const { record } = claim;
  let errors: readonly unknown[];
  try {
    const pod = parsePod(record);
    // The pod's own record says where its networks are recorded.
    const runner = { runtime: { ...runtime, stateDir: pod.stateDir, cacheDir: pod.cacheDir } };
    errors = await deleteNetworks(
      runner,
      pod,
      lastBegun(record, pod.networks.length) + 1,
      ownNetns(pod, record.netns, env),
      (list, id) => isAttachedAgain(list, id, pod, runtime),
    );
  } catch (error) {
    errors = [error];
  }
  if (!errors.length) {
    claim.drop();
    return true;
  }
  claim.fail(errors.map(toRecorded));
  throw joinErrors(`Cannot delete the networks of container "${id.containerId}"`, errors);
};

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
    if (tryEntry(cacheDir, id)) return true;
    if (!isOfEarlierBoot(record, runtime.env)) return false;
    const witness = await runtime.openWitness?.();
    return (await witness?.findLife(list, id)) !== undefined;
  }
  if ((await findSuccessor(own, within)) === undefined) return false;
  const claim = claimRecord({ stateDir, env: runtime.env }, id);
  return claim !== undefined && !('holder' in claim) && (await yieldToSuccessor(claim, within));
}
