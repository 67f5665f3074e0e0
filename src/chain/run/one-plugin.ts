// How is one plugin called without a list?
import type { ResultOf } from '../../cni/result.ts';
import type { Conflist } from '../config/conflist.ts';
import { addNetwork, checkNetwork, deleteNetwork } from './run.ts';
import type { Attachment, ChainRuntime } from './runtime.ts';

/**
 * ADD of a single plugin, see {@link parsePlugin}. It gets its own configuration under its own name and version,
 * without `prevResult`. Its result is recorded with the configuration's own bytes, as libcni does.
 * @returns the result, in the configuration's version
 * @throws CniError when it failed; then it was undone
 */
export function addPlugin(
  plugin: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
): Promise<ResultOf> {
  return addNetwork(plugin, attachment, runtime);
}

/**
 * CHECK of a single plugin with the result of its ADD. Ignores `disableCheck`, which only lists have.
 * @throws CniError when it reports a problem, or when no ADD is on record
 */
export function checkPlugin(plugin: Conflist, attachment: Attachment, runtime: ChainRuntime): Promise<void> {
  return checkNetwork({ ...plugin, disableCheck: false }, attachment, runtime);
}

/**
 * DEL of a single plugin with the result of its ADD; the record is deleted on success.
 * @throws CniError when it failed
 */
export function deletePlugin(plugin: Conflist, attachment: Attachment, runtime: ChainRuntime): Promise<void> {
  return deleteNetwork(plugin, attachment, runtime);
}
