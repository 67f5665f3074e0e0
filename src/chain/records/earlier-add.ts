// What does an ADD do about an earlier ADD of the same attachment?

import type { AttachmentId } from '../../cni/attachment.ts';
import { ErrorCode } from '../../cni/errors.ts';
import { holderOf } from '../../journal/claim.ts';
import { refuseElsewhere } from '../../journal/elsewhere.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { forgetIfDetached } from './adopted-attachments.ts';
import type { CachedAttachment } from './cache-record.ts';
import { acquireClaim, deleteClaimed } from './delete-attachment.ts';
import { waitLimit } from './holder-wait.ts';
import { isOfEarlierBoot } from './recover.ts';
import { findCached, findRecord } from './remembered-add.ts';
import { cacheFileOf } from './result-cache.ts';

/**
 * Deletes what an earlier ADD of the attachment left if that was cut off, or if its namespace or its boot is gone. Drops the
 * record of an adopted attachment that its own runtime has deleted. Waits while another process works on it.
 * @returns the file that records an earlier ADD whose attachment exists; undefined if there is none
 * @throws CniError of what cannot be deleted, 11 while another process works on the attachment
 */
export async function settleEarlierAdd(id: AttachmentId, runtime: ChainRuntime): Promise<string | undefined> {
  const wait = waitLimit(id, runtime);
  for (;;) {
    const record = findRecord(id, runtime);
    if (record === undefined) break;
    refuseElsewhere(record, runtime.env);
    if (isAttached(record, runtime)) {
      const { stateDir } = runtime;
      if (stateDir === undefined || !(await forgetIfDetached(stateDir, record, runtime))) {
        // That took time: another process may have dropped the record, and may have begun an ADD that must be waited for.
        const again = findRecord(id, runtime);
        if (again?.runner.op === record.runner.op && isAttached(again, runtime)) return again.file;
      }
      continue;
    }
    const holder = holderOf(record);
    if (holder) await wait(holder);
    else {
      const claim = await acquireClaim(id, runtime, again => !isAttached(again, runtime));
      if (claim) await deleteClaimed(claim, runtime);
    }
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
async function hasLostInterface(cached: CachedAttachment, { openWitness }: ChainRuntime): Promise<boolean> {
  if (cached.netns === '') return false;
  try {
    return (await openWitness?.())?.hasInterface(cached) === false;
  } catch {
    // If that cannot be determined, it counts as attached.
    return false;
  }
}

function isAttached(record: AttachmentRecord, { env }: ChainRuntime): boolean {
  const { phase, netns } = record;
  return phase === 'attached' && !isOfEarlierBoot(record, env) && compareNetns(netns, record) === 'same';
}
