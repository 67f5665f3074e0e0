// What does an ADD do about an earlier ADD of the same attachment?

import type { AttachmentId } from '../../cni/attachment.ts';
import { ErrorCode } from '../../cni/errors.ts';
import { isOfEarlierBoot } from '../../journal/boot.ts';
import { claimOf } from '../../journal/claim.ts';
import { refuseElsewhere } from '../../journal/elsewhere.ts';
import { cacheFileOf } from '../../journal/entries.ts';
import type { CachedAttachment } from '../../journal/entry.ts';
import { lent } from '../../journal/lock.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { deleteClaimed } from './delete-attachment.ts';
import { hasItsInterface } from './held-attachment.ts';
import type { Held } from './holder-wait.ts';
import { waitForOrphanProcesses } from './orphan-wait.ts';
import { findCached } from './remembered-add.ts';

/**
 * Deletes what an earlier ADD of the attachment left if that was cut off, or if its namespace or its boot is gone.
 * @param held the attachment; undefined without a journal
 * @returns the file that records an earlier ADD whose attachment exists; undefined if there is none
 * @throws CniError of what cannot be deleted, 11 while an orphan process works on the attachment
 */
export async function settleEarlierAdd(
  id: AttachmentId,
  held: Held | undefined,
  runtime: ChainRuntime,
): Promise<string | undefined> {
  const { stateDir } = runtime;
  const { lock, record } = held ?? {};
  if (stateDir !== undefined && lock && record) {
    refuseElsewhere(record, runtime.env);
    if (isAttached(record, runtime)) return record.file;
    // The ADD keeps the lock, whatever becomes of what was there.
    const claim = claimOf(stateDir, record, lent(lock));
    claim.begin();
    await deleteClaimed(claim, runtime);
    lock.become('add');
  } else if (lock?.dead.length) {
    await waitForOrphanProcesses({ record: { ...id, runners: lock.dead }, lock }, runtime);
  }
  // If the cache cannot be read, do not begin: the same disk is to hold the new record.
  const cached = findCached(id, runtime, [ErrorCode.decodingFailure]);
  if (cached === undefined || (await hasLostInterface(cached, runtime))) return undefined;
  return cacheFileOf(cacheDirOf(runtime), id);
}

/**
 * A cached result outlives a DEL that was killed, or that another tool ran. Without its interface there is no attachment, and
 * this ADD must be undone if it fails.
 */
async function hasLostInterface(cached: CachedAttachment, runtime: ChainRuntime): Promise<boolean> {
  if (cached.netns === '') return false;
  try {
    return !(await hasItsInterface(cached, runtime));
  } catch {
    // If that cannot be determined, it counts as attached.
    return false;
  }
}

function isAttached(record: AttachmentRecord, { env }: ChainRuntime): boolean {
  const { phase, netns } = record;
  return phase === 'attached' && !isOfEarlierBoot(record, env) && compareNetns(netns, record) === 'same';
}
