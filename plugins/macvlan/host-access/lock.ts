// Which process may change what the host needs to reach its containers?
import { runDir } from '../../../src/cni/directories.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { withPluginLock } from '../../../src/plugin/lock.ts';
import { ownNetns } from '../../../src/sys/netns.ts';

/**
 * Runs a step during which no other process of ours makes or removes a macvlan of the host, or counts its users.
 * @throws CniError 11 when the lock is not available in time
 */
export function withHostAccessLock<T>({ environment }: Pick<Call, 'environment'>, step: () => T): T {
  return withPluginLock(`${runDir(environment)}/host-access-${ownNetns().ino}.lock`, step);
}
