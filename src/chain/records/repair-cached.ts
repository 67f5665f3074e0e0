// How is an attachment repaired that another runtime made, and that has no record here?
//
// Such a runtime knows no claims, so its DEL may run at any moment of a repair. What a repair then puts back would belong to
// nothing: it is deleted again.
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
 * @returns undefined if the attachment was deleted during the repair, or its configuration cannot be used
 * @throws CniError if what was put back too late cannot be deleted
 */
export async function repairCached(
  cached: CachedAttachment,
  runtime: ChainRuntime,
): Promise<PluginCondition[] | undefined> {
  const list = findConfigOfAdd(cached, runtime);
  if (list === undefined || !isThere(cached, runtime)) return undefined;
  const plugins = await inTurn(cached, runtime, () => repairPlugins(list, cached, {}, runtime));
  return (await undoIfDeleted(cached, runtime)) ? undefined : plugins;
}

/**
 * Deletes what a repair has put back, if the runtime has deleted the attachment since.
 * @returns whether it has
 * @throws CniError if what was put back too late cannot be deleted
 */
export async function undoIfDeleted(cached: CachedAttachment, runtime: ChainRuntime): Promise<boolean> {
  if (isThere(cached, runtime)) return false;
  const list = findConfigOfAdd(cached, runtime);
  // The first plugin of a later ADD of the same name notes it before it makes anything.
  const isFree = () => !findGeneration(runDir(runtime.env), cached) && !findCached(cached, quiet(runtime));
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
