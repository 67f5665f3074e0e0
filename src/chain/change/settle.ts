// What happens to a change whose runner died?
//
// The plugins are told once more what the attachment was before. If one of them cannot go back, for example because another
// attachment has taken a port since, all of them are told what it was to become. Either way the settings on record are
// those in the kernel.
import type { AttachmentId } from '../../cni/attachment.ts';
import { toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { isOfEarlierBoot } from '../../journal/boot.ts';
import { type Claim, claimOf } from '../../journal/claim.ts';
import { isElsewhere } from '../../journal/elsewhere.ts';
import { removeAside, replaceAttachment } from '../../journal/entries.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { readRecord } from '../../journal/store.ts';
import { withRecordedDirs } from '../records/delete-attachment.ts';
import { isNoteGone, noteOf } from '../records/foreign.ts';
import { hold } from '../records/holder-wait.ts';
import { waitForOrphanProcesses } from '../records/orphan-wait.ts';
import { findCached, findRecord, isOwnCache, toRemembered } from '../records/remembered-add.ts';
import { withDetails } from '../run/plugin-errors.ts';
import type { ChainRuntime } from '../run/runtime.ts';
import { changeParts, goalOf } from './call.ts';
import { isUnfinished } from './unfinished.ts';

/**
 * Undoes or finishes the change of an attachment if its runner died. Waits while the runner lives.
 * @throws CniError of the plugin that can neither go back nor forth; 11 while another process works on the attachment
 */
export async function settleChange(id: AttachmentId, runtime: ChainRuntime): Promise<void> {
  const { stateDir } = runtime;
  if (stateDir === undefined) return;
  const needsWork = (record: AttachmentRecord | undefined): record is AttachmentRecord =>
    record !== undefined &&
    isUnfinished(record) &&
    (isReachable(record, runtime) || isAbandoned(record, runtime));
  if (!needsWork(findRecord(id, runtime))) return;
  const held = await hold(id, runtime, 'change');
  if (held === undefined) return;
  if (!needsWork(held.record)) return held.lock.release();
  const claim = claimOf(stateDir, held.record, held.lock);
  try {
    await settleClaimed(claim, stateDir, runtime);
  } finally {
    claim.leave();
  }
}

/**
 * The same for an attachment that is claimed.
 * @returns its record afterwards; undefined, and the record is dropped, if another runtime made it and has deleted it since
 */
export async function settleClaimed(
  claim: Claim,
  stateDir: string,
  runtime: ChainRuntime,
): Promise<AttachmentRecord | undefined> {
  if (isAbandoned(claim.record, runtime)) {
    claim.drop();
    return undefined;
  }
  const reaching = { ...withRecordedDirs(runtime, claim.record), cacheDir: claim.record.cacheDir };
  if (claim.record.change) {
    await waitForOrphanProcesses(claim, reaching);
    claim.note(await goBackOrOn(claim.record, reaching));
  }
  const record = readRecord(stateDir, claim.record) ?? claim.record;
  if (record.before) writeCache(claim, record, reaching);
  return readRecord(stateDir, record) ?? record;
}

/**
 * Writes the cached result of a changed attachment, unless another runtime has made the attachment again since, or has deleted
 * its own.
 * @param note of the ADD, read before the change
 * @throws CniError 5
 */
export function writeCache(
  claim: Claim,
  record: AttachmentRecord,
  runtime: ChainRuntime,
  note = record.generation ?? noteOf(record, runtime),
): void {
  const isOver = record.foreign === true && isNoteGone(record, note, runtime);
  if (isOver) removeAside(record.cacheDir, record);
  else {
    replaceAttachment(record.cacheDir, toRemembered(record), cached =>
      cached === undefined ? record.foreign !== true : isOwnCache(cached, record),
    );
  }
  claim.note({ event: 'cached' });
}

async function goBackOrOn(
  record: AttachmentRecord,
  runtime: ChainRuntime,
): Promise<{ event: 'unchanged' } | { event: 'changed'; result: JsonObject }> {
  const { change, result = {} } = record;
  const { plugins = [] } = change ?? {};
  try {
    await changeParts(goalOf(record, record), [...plugins].reverse(), result, runtime);
    return { event: 'unchanged' };
  } catch (cannotGoBack) {
    try {
      const goal = goalOf(record, change?.to ?? record);
      return { event: 'changed', result: await changeParts(goal, plugins, result, runtime) };
    } catch (cannotGoOn) {
      const { message } = toCniError(cannotGoOn);
      throw withDetails(cannotGoBack, `an interrupted change cannot be finished either: ${message}`);
    }
  }
}

/** Without its namespace an attachment cannot be changed, and DEL removes whatever it has. */
function isReachable(record: AttachmentRecord, { env }: ChainRuntime): boolean {
  return (
    !isOfEarlierBoot(record, env) &&
    !isElsewhere(record, env) &&
    compareNetns(record.netns, record) === 'same'
  );
}

/** Whether another runtime made it, and has deleted it or made it again since: then nothing of the change is left. */
function isAbandoned(record: AttachmentRecord, runtime: ChainRuntime): boolean {
  const { foreign, phase, netns, cacheDir, generation } = record;
  if (!foreign || phase !== 'attached' || isElsewhere(record, runtime.env)) return false;
  const { onWarning: _, ...quiet } = runtime;
  const cached = findCached(record, { ...quiet, cacheDir });
  return (
    isOfEarlierBoot(record, runtime.env) ||
    compareNetns(netns, record) !== 'same' ||
    isNoteGone(record, generation, runtime) ||
    cached === undefined ||
    !isOwnCache(cached, record)
  );
}
