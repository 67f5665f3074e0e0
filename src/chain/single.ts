// How is one plugin called by itself, without a list?
import type { JsonObject } from '../cni/json.ts';
import type { Conflist } from './conflist.ts';
import { addNetwork, checkNetwork, deleteNetwork } from './run.ts';
import type { Attachment, Runtime } from './runtime.ts';

/**
 * ADD of a single plugin, see {@link parsePlugin}: it gets its own configuration under its own name and version,
 * without `prevResult`, and what it gave is recorded with the configuration's own bytes, as libcni does.
 * @returns the result, in the configuration's version
 * @throws CniError when it failed; it was undone then
 */
export function addPlugin(plugin: Conflist, attachment: Attachment, runtime: Runtime): Promise<JsonObject> {
  return addNetwork(plugin, attachment, runtime);
}

/**
 * CHECK of a single plugin with what its ADD gave. It heeds no `disableCheck`, which only lists have.
 * @throws CniError when it objects, or when there is no ADD on record
 */
export function checkPlugin(plugin: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  return checkNetwork({ ...plugin, disableCheck: false }, attachment, runtime);
}

/**
 * DEL of a single plugin with what its ADD gave; the record goes when it succeeded.
 * @throws CniError when it failed
 */
export function deletePlugin(plugin: Conflist, attachment: Attachment, runtime: Runtime): Promise<void> {
  return deleteNetwork(plugin, attachment, runtime);
}
