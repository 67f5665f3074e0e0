// How is an attachment repaired that another runtime made, and that has no record here?
import type { ChainRuntime } from '../run/runtime.ts';
import { inTurn } from '../run/turns.ts';
import type { Rest } from '../run/visits.ts';
import type { CachedAttachment } from './cache-record.ts';
import { findConfigOfAdd } from './config-of-add.ts';
import { isThere } from './others-del.ts';
import { type PluginCondition, type RepairMeans, repairPlugins, worstOf } from './repair-plugins.ts';
import { undoIfDeleted } from './undo-if-deleted.ts';

/**
 * Has every plugin check its part and, if that fails, put back what is missing.
 * @param note of the ADD, read before it was found that something is missing
 * @param rest waits until a DEL that has begun has ended
 * @returns undefined if the attachment was deleted during the repair, or its configuration cannot be used
 * @throws CniError if what was put back too late cannot be deleted
 */
export async function repairCached(
  cached: CachedAttachment,
  note: string | undefined,
  runtime: ChainRuntime,
  means: RepairMeans = {},
  rest?: Rest,
): Promise<PluginCondition[] | undefined> {
  const list = findConfigOfAdd(cached, runtime);
  if (list === undefined || !isThere(cached, runtime)) return undefined;
  const plugins = await inTurn(cached, runtime, () => repairPlugins(list, cached, means, runtime));
  if (means.dryRun || worstOf(plugins) === 'sound') return plugins;
  return (await undoIfDeleted(cached, note, runtime, rest)) ? undefined : plugins;
}
