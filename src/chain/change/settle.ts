// What happens to a change whose runner died?
//
// The plugins are told once more what the attachment was before. If one of them cannot go back, for example because another
// attachment has taken a port since, all of them are told what it was to become. Either way the settings on record are
// those in the kernel.
import {
  type AttachmentRecord,
  findNetns,
  type HeldKnown,
  hold,
  isKnown,
  pastOf,
  type Settings,
} from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { withRecordedDirs } from '../records/delete-attachment.ts';
import { isNoteGone, noteOf } from '../records/foreign.ts';
import { findRecord } from '../records/known-add.ts';
import { withDetails } from '../run/plugin-outcome.ts';
import { type ChainRuntime, holdCall } from '../run/runtime.ts';
import { changeParts, goalOf } from './call.ts';

/**
 * Undoes or finishes the change of an attachment if its runner died. Waits while the runner lives.
 * @throws CniError of the plugin that can neither go back nor forth; 11 while another process works on the attachment
 */
export async function settleChange(id: AttachmentId, runtime: ChainRuntime): Promise<void> {
  // Without its namespace an attachment cannot be changed, and DEL removes whatever it has.
  const needsWork = (record: AttachmentRecord) =>
    pastOf(record, runtime.env).kind === 'changing' &&
    (findNetns(record, runtime.env) === 'same' || isAbandoned(record, runtime));
  const found = findRecord(id, runtime);
  if (found === undefined || !needsWork(found)) return;
  const held = await hold(id, holdCall(runtime, 'change'));
  try {
    if (isKnown(held) && needsWork(held.record)) await settleHeld(held, runtime);
  } finally {
    held.release();
  }
}

/**
 * The same for an attachment that is held.
 * @returns its record afterwards; undefined, and its note is dropped, if another runtime made it and has deleted it since
 */
export async function settleHeld(
  held: HeldKnown,
  runtime: ChainRuntime,
): Promise<AttachmentRecord | undefined> {
  const { record } = held;
  if (isAbandoned(record, runtime)) {
    held.forget();
    return undefined;
  }
  if (record.change === undefined) return record;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
  await held.awaitOrphans();
  await goBackOrOn(held, reaching);
  return held.record;
}

/**
 * Commits the change of an attachment, unless another runtime has made it again since, or has deleted its own.
 * @param note of the ADD, read before the change
 * @throws CniError 5: it is not committed
 */
export function commitChange(
  held: HeldKnown,
  to: Settings & { readonly result: JsonObject },
  runtime: ChainRuntime,
  note = held.record.generation ?? noteOf(held.record, runtime),
): void {
  const { record } = held;
  if (record.foreign === true && isNoteGone(record, note, runtime)) held.forget();
  else held.commit(to);
}

async function goBackOrOn(held: HeldKnown, runtime: ChainRuntime): Promise<void> {
  const { record } = held;
  const { change, result = {} } = record;
  const { plugins = [] } = change ?? {};
  try {
    await changeParts(goalOf(record, record), [...plugins].reverse(), result, runtime);
    held.abandon();
  } catch (cannotGoBack) {
    try {
      const to = change?.to ?? record;
      commitChange(
        held,
        { ...to, result: await changeParts(goalOf(record, to), plugins, result, runtime) },
        runtime,
      );
    } catch (cannotGoOn) {
      const { message } = toCniError(cannotGoOn);
      throw withDetails(cannotGoBack, `an interrupted change cannot be finished either: ${message}`);
    }
  }
}

/** Whether another runtime made it, and has deleted it or made it again since: then nothing of the change is left. */
function isAbandoned(record: AttachmentRecord, runtime: ChainRuntime): boolean {
  const { foreign, isNoted, generation } = record;
  if (!foreign || !isNoted || pastOf(record, runtime.env).why !== undefined) return false;
  return findNetns(record, runtime.env) !== 'same' || isNoteGone(record, generation, runtime);
}
