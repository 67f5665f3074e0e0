// What becomes of what was put back for an attachment that its runtime deleted at that moment?
//
// It would belong to nothing, so it is deleted again, after the runtime has finished: foreign.ts says how that shows.

import type { CachedAttachment } from '../../attachments/store.ts';
import { pause } from '../../wait.ts';
import { deleteNetwork } from '../run/run.ts';
import type { ChainRuntime } from '../run/runtime.ts';
import type { Rest } from '../run/visits.ts';
import { DEL_WITHOUT_NOTE_MS, isNoteGone, isThere, noteOf } from './foreign.ts';
import { findCached, findConfigOfAdd } from './known-add.ts';

/** A runtime whose DEL takes longer has most likely failed, and calls it again. */
const DEL_MS = 15_000;
const LOOK_AGAIN_MS = 100;
/** A DEL calls the same plugins as what was put back, and on a node that is busy both take long. */
const TIMES_THE_WORK = 4;

/**
 * Deletes what was put back, if the runtime has begun to delete the attachment since. Waits until it has finished: what belongs to
 * plugins that it has not called yet, it deletes itself. Without a note waits for as long as a DEL may take.
 * @param cached as it is now, if it was not deleted
 * @param note as it was before the work
 * @param begun when the work began, by the clock of `performance`
 * @returns whether the runtime deletes it
 * @throws CniError if what was put back too late cannot be deleted
 */
export async function undoIfDeleted(
  cached: CachedAttachment,
  note: string | undefined,
  runtime: ChainRuntime,
  begun: number,
  rest: Rest = pause,
): Promise<boolean> {
  const isKnownToEnd = isNoteGone(cached, note, runtime);
  if (note !== undefined && !isKnownToEnd && isThere(cached, runtime)) return false;
  const usualMs = isKnownToEnd ? DEL_MS : DEL_WITHOUT_NOTE_MS;
  const now = performance.now();
  const until = now + Math.max(usualMs, TIMES_THE_WORK * (now - begun));
  while (isThere(cached, runtime) && performance.now() < until) await rest(LOOK_AGAIN_MS);
  if (!isKnownToEnd && isThere(cached, runtime)) return false;
  const { onWarning: _, ...quiet } = runtime;
  const list = findConfigOfAdd(cached, runtime);
  // The first plugin of a later ADD of the same name notes it before it makes anything.
  const isFree = () => noteOf(cached, runtime) === undefined && !findCached(cached, quiet);
  if (list !== undefined && isFree()) await deleteNetwork(list, cached, quiet, isFree);
  return true;
}
