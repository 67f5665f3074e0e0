// What happens to a change whose runner died?
//
// The plugins are told once more what the attachment was before. If one of them cannot go back, for example because another
// attachment has taken a port since, all of them are told what it was to become. Either way the settings on record are
// those in the kernel.
import { type AttachmentRecord, type Held, type HeldKnown, hold } from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { toCniError } from '../../cni/errors.ts';
import { isAbandoned, undoIfDeleted } from '../records/foreign.ts';
import { findCached } from '../records/known-add.ts';
import { withDetails } from '../run/plugin-outcome.ts';
import { type ChainRuntime, holdCall, withRecordedDirs } from '../run/runtime.ts';
import { changeParts, goalOf } from './call.ts';

/**
 * Undoes or finishes the change of an attachment if its runner died. Waits while the runner lives.
 * @throws CniError of the plugin that can neither go back nor forth; 11 while another process works on the attachment
 */
export async function settleChange(id: AttachmentId, runtime: ChainRuntime): Promise<void> {
  const work: PutBack = {};
  const held = await hold(id, holdCall(runtime, 'change'));
  const { record, known } = held;
  const settling = known && needsWork(known, runtime) && settleHeld(known, runtime, work);
  await whileHeld(held, settling);
  if (!(record && (await wasDeleted(record, work, runtime)))) await settling;
}

/** Releases an attachment once the work on it has ended, in whichever way. */
export async function whileHeld(held: Held, work: unknown): Promise<void> {
  await Promise.allSettled([work]);
  held.release();
}

/** Without its namespace an attachment cannot be changed, and DEL removes whatever it has. */
function needsWork({ record, past }: HeldKnown, runtime: ChainRuntime): boolean {
  return past.kind === 'changing' && (past.netns() === 'same' || isAbandoned(record, runtime));
}

/** What plugins have put back. */
export interface PutBack {
  /** When the first of them was told to, by the clock of `performance`; undefined before. */
  begun?: number;
}

/**
 * Deletes what a change has put back if another runtime made the attachment, and has deleted it since.
 * @param record as it was before the work
 */
export async function wasDeleted(
  record: AttachmentRecord,
  { begun }: PutBack,
  runtime: ChainRuntime,
): Promise<boolean> {
  if (!record.foreign || begun === undefined) return false;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
  // The change has written it again, with the new settings.
  return undoIfDeleted(findCached(record, reaching) ?? record, record.generation, reaching, begun);
}

/**
 * The same for an attachment that is held.
 * @returns its record afterwards; undefined, and its note is dropped, if another runtime made it and has deleted it since
 */
export async function settleHeld(
  held: HeldKnown,
  runtime: ChainRuntime,
  work: PutBack,
): Promise<AttachmentRecord | undefined> {
  const { record } = held;
  if (isAbandoned(record, runtime)) {
    held.forget();
    return undefined;
  }
  if (record.change === undefined) return record;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
  await held.awaitOrphans();
  work.begun = performance.now();
  await goBackOrOn(held, reaching);
  return held.record;
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
      held.commit({ ...to, result: await changeParts(goalOf(record, to), plugins, result, runtime) });
    } catch (cannotGoOn) {
      const { message } = toCniError(cannotGoOn);
      throw withDetails(cannotGoBack, `an interrupted change cannot be finished either: ${message}`);
    }
  }
}
