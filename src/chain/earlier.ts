// What does an ADD find of an earlier one of the same attachment, and what becomes of that?

import { ErrorCode } from '../cni/errors.ts';
import { holderOf } from '../journal/claim.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import type { AttachmentId } from './cache-record.ts';
import { findCached, findRecord } from './known.ts';
import { isOfEarlierBoot } from './recover.ts';
import { cacheFileOf } from './result-cache.ts';
import { cacheDirOf, type Runtime } from './runtime.ts';
import { patience, tearDownClaimed, winClaim } from './tear-down.ts';

/**
 * Takes down what an earlier ADD of the attachment left when that was cut off, or when its namespace or its boot is gone;
 * waits while another process works on it.
 * @returns the file that knows of an earlier ADD whose attachment stands; undefined when the way is clear
 * @throws CniError of what cannot be taken down, 11 while another process works on the attachment
 */
export async function clearTheWay(id: AttachmentId, runtime: Runtime): Promise<string | undefined> {
  const wait = patience(id, runtime);
  for (;;) {
    const record = findRecord(id, runtime);
    if (record === undefined) break;
    if (stands(record, runtime)) return record.file;
    const holder = holderOf(record);
    if (holder) await wait(holder);
    else {
      const claim = await winClaim(id, runtime, again => !stands(again, runtime));
      if (claim) await tearDownClaimed(claim, runtime);
    }
  }
  // Where nothing can be read, nothing is begun: the same disk is to hold what is about to be done.
  const cached = findCached(id, runtime, [ErrorCode.decodingFailure]);
  return cached && cacheFileOf(cacheDirOf(runtime), id);
}

function stands(record: AttachmentRecord, { env }: Runtime): boolean {
  const { phase, netns, netnsIdentity } = record;
  return (
    phase === 'attached' && !isOfEarlierBoot(record, env) && compareNetns(netns, netnsIdentity) === 'same'
  );
}
