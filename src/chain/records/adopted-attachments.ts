// Which adopted attachments has their own runtime deleted since?
//
// Their runtime does not know our records: its DEL deletes the interface and its cached result, and leaves the record.

import type { AttachmentId } from '../../cni/attachment.ts';
import { type Claim, claimRecord } from '../../journal/claim.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { holderOf } from '../../journal/runner.ts';
import { listRecords } from '../../journal/store.ts';
import type { ChainRuntime } from '../run/runtime.ts';
import { readAttachment } from './result-cache.ts';

/**
 * Drops the records of adopted attachments whose cached result and interface are both gone. One of them is not enough: a
 * cache may be cleared, and a namespace may end without a DEL. No plugin is called.
 * @returns the attachments whose records were dropped
 * @throws CniError 5
 */
export async function forgetDetached(
  stateDir: string,
  network: string | undefined,
  runtime: ChainRuntime,
): Promise<AttachmentId[]> {
  const forgotten: AttachmentId[] = [];
  for (const record of listRecords(stateDir, network).records) {
    const { containerId, ifname } = record;
    if (await forgetIfDetached(stateDir, record, runtime))
      forgotten.push({ network: record.network, containerId, ifname });
  }
  return forgotten;
}

/** The same for one record. @returns whether it was dropped */
export async function forgetIfDetached(
  stateDir: string,
  record: AttachmentRecord,
  runtime: ChainRuntime,
): Promise<boolean> {
  if (!isDetached(record) || (await hasInterface(record, runtime))) return false;
  const claim = claimRecord({ stateDir, env: runtime.env }, record, isDetached, 'repair');
  if (claim === undefined || 'holder' in claim) return false;
  claim.drop();
  return true;
}

/**
 * Drops the claimed record of an adopted attachment that its own runtime has deleted: DEL would delete half of what that runtime
 * may be making.
 * @returns whether it was dropped
 */
export async function yieldToItsRuntime(claim: Claim, runtime: ChainRuntime): Promise<boolean> {
  if (!hasLostResult(claim.record) || (await hasInterface(claim.record, runtime))) return false;
  claim.drop();
  return true;
}

function isDetached(record: AttachmentRecord): boolean {
  return record.phase === 'attached' && !holderOf(record) && hasLostResult(record);
}

/** Our own DEL deletes the cached result when everything else is deleted. */
function hasLostResult(record: AttachmentRecord): boolean {
  if (record.adopted !== true) return false;
  try {
    return readAttachment(record.cacheDir, record) === undefined;
  } catch {
    // An unreadable file still exists: the runtime has not deleted it.
    return false;
  }
}

/** Without a witness to ask the node, assume the interface exists as long as its namespace does. */
async function hasInterface(record: AttachmentRecord, { openWitness }: ChainRuntime): Promise<boolean> {
  if (compareNetns(record.netns, record) !== 'same') return false;
  return (await openWitness?.())?.hasInterface(record) ?? true;
}
