// Which process may change what several containers share: the bridge and its gateways?
import { runDir } from '../../../src/cni/directories.ts';
import { withPluginLock } from '../../../src/plugin/lock.ts';
import { ownNetns } from '../../../src/sys/netns.ts';

/**
 * Runs a step during which no other process of ours may create or remove the bridge. Otherwise attaching a port could race with
 * removing the bridge after the last one.
 * @throws CniError 11 when the lock is not available in time
 */
export function withBridgeLock<T>(name: string, step: () => T): T {
  return withPluginLock(`${runDir()}/bridge-${ownNetns().ino}-${name}.lock`, step);
}
