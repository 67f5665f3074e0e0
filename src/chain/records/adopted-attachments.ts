// Which adopted attachments has their own runtime deleted since?
//
// Their runtime does not know our records: its DEL deletes the interface and its cached result, and leaves the record.

import type { AttachmentId } from '../../cni/attachment.ts';
import { claimRecord, holderOf } from '../../journal/claim.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
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
  const claim = claimRecord(stateDir, record, isDetached);
  if (claim === undefined || 'holder' in claim) return false;
  claim.drop();
  return true;
}

function isDetached(record: AttachmentRecord): boolean {
  const { adopted, phase, cacheDir } = record;
  if (adopted !== true || phase !== 'attached' || holderOf(record)) return false;
  try {
    return readAttachment(cacheDir, record) === undefined;
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
