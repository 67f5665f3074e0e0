// What does an ADD do about an earlier ADD for the same pod?

import { CniError, ErrorCode } from '../cni/errors.ts';
import { isOfEarlierBoot } from '../journal/boot.ts';
import type { Claim } from '../journal/claim.ts';
import { refuseElsewhere } from '../journal/elsewhere.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import { deleteClaimedPod } from './delete.ts';
import type { Runner } from './runner.ts';

/**
 * Deletes what an earlier ADD left that was cut off, or was for another namespace or boot, because no DEL was called for it.
 * @param claim of its record
 * @throws CniError 7 when the pod is attached in this same namespace; of what cannot be deleted; 11 when it was attached elsewhere
 */
export async function settleEarlierAdd(runner: Runner, netns: string, claim: Claim): Promise<void> {
  const { record } = claim;
  const { env } = runner.runtime;
  refuseElsewhere(record, env);
  const isOurs = !isOfEarlierBoot(record, env) && compareNetns(netns, record) === 'same';
  if (record.phase === 'attached' && isOurs)
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot attach "${record.ifname}" of container "${record.containerId}": it is already attached; run DEL first`,
      { details: `recorded in "${record.file}"` },
    );
  claim.begin();
  await deleteClaimedPod(runner, record, claim, netns);
}
