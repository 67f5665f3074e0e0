// How is an attachment repaired that another runtime made, and that has no record here?
//
// Such a runtime knows no claims, so its DEL may run at any moment of a repair. What a repair then puts back would belong to
// nothing: it is deleted again. The first plugin of a DEL removes the note of the ADD (journal/generation.ts), and the runtime
// removes its cached result after the last one, so the two tell whether a DEL has begun and whether it has ended.
import type { AttachmentId } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { findGeneration } from '../../journal/generation.ts';
import { findNetnsIdentity } from '../../journal/netns-identity.ts';
import { deleteNetwork } from '../run/run.ts';
import type { ChainRuntime } from '../run/runtime.ts';
import { inTurn } from '../run/turns.ts';
import { type CachedAttachment, renderAttachment } from './cache-record.ts';
import { findConfigOfAdd } from './config-of-add.ts';
import { findCached } from './remembered-add.ts';
import { type PluginCondition, repairPlugins } from './repair.ts';

/**
 * Has every plugin check its part and, if that fails, put back what is missing.
 * @param note of the ADD, read before it was found that something is missing
 * @returns undefined if the attachment was deleted during the repair, or its configuration cannot be used
 * @throws CniError if what was put back too late cannot be deleted
 */
export async function repairCached(
  cached: CachedAttachment,
  note: string | undefined,
  runtime: ChainRuntime,
): Promise<PluginCondition[] | undefined> {
  const list = findConfigOfAdd(cached, runtime);
  if (list === undefined || !isThere(cached, runtime)) return undefined;
  const plugins = await inTurn(cached, runtime, () => repairPlugins(list, cached, {}, runtime));
  return (await undoIfDeleted(cached, note, runtime)) ? undefined : plugins;
}

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

/** A runtime whose DEL takes longer has most likely failed, and calls it again. */
const DEL_MS = 15_000;
const LOOK_AGAIN_MS = 100;

/**
 * Deletes what a repair has put back, if the runtime has begun to delete the attachment since. Waits until it has finished: what
 * belongs to plugins that it has not called yet, it deletes itself.
 * @param note as it was before the repair
 * @returns whether it has
 * @throws CniError if what was put back too late cannot be deleted
 */
export async function undoIfDeleted(
  cached: CachedAttachment,
  note: string | undefined,
  runtime: ChainRuntime,
): Promise<boolean> {
  if (isThere(cached, runtime)) {
    if (!isNoteGone(cached, note, runtime)) return false;
    const until = performance.now() + DEL_MS;
    while (isThere(cached, runtime) && performance.now() < until)
      await new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MS));
  }
  const list = findConfigOfAdd(cached, runtime);
  // The first plugin of a later ADD of the same name notes it before it makes anything.
  const isFree = () => noteOf(cached, runtime) === undefined && !findCached(cached, quiet(runtime));
  if (list !== undefined && isFree()) await deleteNetwork(list, cached, quiet(runtime), isFree);
  return true;
}

/** Whether the cached result is still that of the same ADD, and its namespace exists. */
export function isThere(cached: CachedAttachment, runtime: ChainRuntime): boolean {
  if (findNetnsIdentity(cached.netns) === undefined) return false;
  const now = findCached(cached, quiet(runtime));
  return now !== undefined && renderAttachment(now) === renderAttachment(cached);
}

function quiet({ onWarning: _, ...runtime }: ChainRuntime): ChainRuntime {
  return runtime;
}
