// Who takes down the networks of pods whose runner has died?
import { toRecorded } from '../chain/add-record.ts';
import { joinErrors } from '../chain/link-errors.ts';
import { findReason, type Recovery, type RecoveryScope, recover, type TakeDown } from '../chain/recover.ts';
import type { Runtime } from '../chain/runtime.ts';
import { claimRecord } from '../journal/claim.ts';
import { lastBegun } from '../journal/lines.ts';
import { deleteNetworks, ownNetns } from './delete.ts';
import { parsePod } from './record.ts';

/**
 * Takes down pods that are recorded as begun and not ended, and whose runner has died; those whose DEL failed, and those
 * of an earlier boot. Never throws: what could not be done waits in its record.
 */
export function recoverPods(podsDir: string, scope: RecoveryScope, runtime: Runtime): Promise<Recovery[]> {
  return recover(scope, { ...runtime, stateDir: podsDir }, takePodDown);
}

const takePodDown: TakeDown = async (id, runtime) => {
  const { stateDir: podsDir = '', env } = runtime;
  const claim = claimRecord(podsDir, id, record => findReason(record, env) !== undefined);
  if (claim === undefined || 'holder' in claim) return false;
  const { record } = claim;
  let errors: readonly unknown[];
  try {
    const pod = parsePod(record);
    // Where the networks are on record, the pod's own record says.
    const runner = { runtime: { ...runtime, stateDir: pod.stateDir, cacheDir: pod.cacheDir } };
    errors = await deleteNetworks(
      runner,
      pod,
      lastBegun(record, pod.networks.length) + 1,
      ownNetns(pod, record.netns),
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
