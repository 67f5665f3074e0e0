// Has the runtime that made an attachment begun to delete it, has it finished, and what becomes of what was put back during that?
//
// Only libcni's cache names such an attachment, and its runtime knows no locks: its DEL may run at any moment. The first plugin of a DEL
// removes the note of the ADD (attachments/generation.ts), and the runtime removes its cached result after the last one.

import { findGeneration } from '../../attachments/generation.ts';
import { hold, type KnownAttachment, lifeOf, pastOf } from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { findNetnsIdentity } from '../../sys/netns-identity.ts';
import { pause } from '../../wait.ts';
import { type ChainRuntime, holdCall } from '../run/runtime.ts';
import { inTurn } from '../run/turns.ts';
import type { Rest } from '../run/visits.ts';
import { deleteAs } from './delete-attachment.ts';
import { findCached, findConfigOfAdd } from './known-add.ts';

/** Why such an attachment is passed over: human-readable. */
export const JUST_DELETED = 'its runtime has just deleted it';

/** Which ADD made the attachment; undefined if no note tells, as after an ADD by plugins that write none. */
export function noteOf(id: AttachmentId, { env }: Pick<ChainRuntime, 'env'>): string | undefined {
  return findGeneration(runDir(env), id)?.token;
}

/** Whether a DEL has begun, or another ADD, since the note was read. Without a note this is unknown: false. */
export function isNoteGone(
  id: AttachmentId,
  note: string | undefined,
  runtime: Pick<ChainRuntime, 'env'>,
): boolean {
  return note !== undefined && noteOf(id, runtime) !== note;
}

/** Where no note is removed when a DEL begins: longer than one takes. */
export const DEL_WITHOUT_NOTE_MS = 5_000;

/** Whether the cached result is still that of the same ADD, and its namespace exists. */
export function isThere(cached: KnownAttachment, runtime: ChainRuntime): boolean {
  return findNetnsIdentity(cached.netns) !== undefined && isCached(cached, runtime);
}

/** Whether its runtime, which removes it after the last plugin of a DEL, still has it. */
function isCached(cached: KnownAttachment, { onWarning: _, ...quiet }: ChainRuntime): boolean {
  const now = findCached(cached, quiet);
  return now !== undefined && lifeOf(now) === lifeOf(cached);
}

/** Whether another runtime made it, and has deleted it or made it again since: then nothing of a change of it is left. */
export function isAbandoned(record: KnownAttachment, runtime: Pick<ChainRuntime, 'env'>): boolean {
  const past = pastOf(record, runtime.env);
  if (!record.foreign || past.kind !== 'changing') return false;
  return past.netns() !== 'same' || isNoteGone(record, record.generation, runtime);
}

/** A runtime whose DEL takes longer has most likely failed, and calls it again. */
const DEL_MS = 15_000;
const LOOK_AGAIN_MS = 100;
/** A DEL calls the same plugins as what was put back, and on a node that is busy both take long. */
const TIMES_THE_WORK = 4;

/**
 * Deletes what was put back, if the runtime has begun to delete the attachment since, and the note of a change, which would name nothing.
 * Waits until the DEL has finished, also if the namespace went first: what belongs to plugins that it has not called yet, it deletes itself.
 * Without a note of the ADD waits for as long as a DEL may take.
 * @param cached as it is now, if it was not deleted
 * @param note as it was before the work
 * @param begun when the work began, by the clock of `performance`
 * @returns whether the runtime deletes it, or has to, since its namespace is gone
 * @throws CniError if what was put back too late cannot be deleted
 */
export async function undoIfDeleted(
  cached: KnownAttachment,
  note: string | undefined,
  runtime: ChainRuntime,
  begun: number,
  rest: Rest = pause,
): Promise<boolean> {
  const { onWarning: _, ...quiet } = runtime;
  // The first plugin of a later ADD of the same name notes it before it makes anything.
  const isUnnoted = () => noteOf(cached, runtime) === undefined;
  const isKnownToEnd = isNoteGone(cached, note, runtime);
  const usualMs = isKnownToEnd ? DEL_MS : DEL_WITHOUT_NOTE_MS;
  const now = performance.now();
  const until = now + Math.max(usualMs, TIMES_THE_WORK * (now - begun));
  while (isUnnoted() && isCached(cached, quiet) && performance.now() < until) await rest(LOOK_AGAIN_MS);
  if (!isKnownToEnd && isThere(cached, quiet)) return false;
  await inTurn(cached, quiet, async () => {
    const held = await hold(cached, holdCall(quiet, 'del'));
    try {
      if (held.record && isAbandoned(held.record, quiet)) held.forget();
      const list = findConfigOfAdd(cached, runtime);
      held.become('remove');
      if (list !== undefined && isUnnoted() && !findCached(cached, quiet))
        await deleteAs(held, list, cached, quiet, cached);
    } finally {
      held.release();
    }
  });
  return true;
}
