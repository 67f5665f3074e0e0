// What does an ADD do about an earlier ADD for the same pod?
import { isOfEarlierBoot } from '../chain/records/recover.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { readRecord } from '../journal/store.ts';
import { deletePod } from './delete.ts';
import type { PodKey } from './record.ts';
import type { Runner } from './runner.ts';

/**
 * Deletes what an earlier ADD left that was cut off, or was for another namespace or boot, because no DEL was called for it.
 * Waits while another process works on the pod.
 * @throws CniError 7 when the pod is attached in this same namespace; of what cannot be deleted; 11 when it has
 *   waited long enough
 */
export async function settleEarlierAdd(
  runner: Runner,
  key: PodKey & { readonly netns: string },
): Promise<void> {
  const { env } = runner.runtime;
  await deletePod(runner, key, key.netns, record => !stands(record, key.netns, env));
  const record = findRecord(runner, key);
  if (record === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach "${key.ifname}" of container "${key.containerId}": it is already attached; run DEL first`,
    { details: `recorded in "${record.file}"` },
  );
}

/** A damaged record is replaced. */
function findRecord({ podsDir }: Runner, key: PodKey): AttachmentRecord | undefined {
  try {
    return readRecord(podsDir, key);
  } catch (error) {
    if (error instanceof CniError && error.code === ErrorCode.decodingFailure) return undefined;
    throw error;
  }
}

function stands(record: AttachmentRecord, netns: string, env: Runner['runtime']['env']): boolean {
  const { phase } = record;
  return phase === 'attached' && !isOfEarlierBoot(record, env) && compareNetns(netns, record) === 'same';
}
