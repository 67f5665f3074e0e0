// Which process may change what the host needs to reach its containers?
import { runDir } from '../../../src/cni/directories.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { withPluginLock } from '../../../src/plugin/lock.ts';
import { ownNetns } from '../../../src/sys/netns.ts';

/** The file is missing and cannot be made: the file system is full or read-only. */
const NO_ROOM = ['ENOSPC', 'EDQUOT', 'EROFS', 'ENOENT'];

/**
 * Runs a step during which no other process of ours makes or removes a macvlan of the host, or counts its users.
 * @param options `closing`: if there is no room for the lock's file, no other process can be in such a step, and DEL goes on without
 * @throws CniError 11 when the lock is not available in time
 */
export function withHostAccessLock<T>(
  { environment }: Pick<Call, 'environment'>,
  step: () => T,
  { closing = false } = {},
): T {
  try {
    return withPluginLock(`${runDir(environment)}/host-access-${ownNetns().ino}.lock`, step);
  } catch (thrown) {
    const { code = '' } = ((thrown as Error).cause ?? {}) as NodeJS.ErrnoException;
    if (closing && NO_ROOM.includes(code)) return step();
    throw thrown;
  }
}
