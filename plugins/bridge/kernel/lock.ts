// Which process may change what several containers share: the bridge and its gateways?
import { runDir } from '../../../src/cni/directories.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { withFlock } from '../../../src/sys/flock.ts';
import { ownNetns } from '../../../src/sys/netns.ts';

/** Holders make a few kernel requests; the longest, removing a bridge, waits for RCU grace periods. */
const LOCK_DEADLINE_MS = 20_000;

/**
 * Runs a step during which no other process of ours may create or remove the bridge. Otherwise attaching a port could race with
 * removing the bridge after the last one.
 * @throws CniError 11 when the lock is not available in time
 */
export function withBridgeLock<T>(name: string, step: () => T): T {
  let entered = false;
  try {
    return withFlock(
      `${runDir()}/bridge-${ownNetns().ino}-${name}.lock`,
      LOCK_DEADLINE_MS,
      () => {
        entered = true;
        return step();
      },
      { mode: 0o600, directoryMode: 0o700 },
    );
  } catch (cause) {
    if (entered) throw cause;
    throw new CniError(ErrorCode.tryAgainLater, (cause as Error).message, { cause });
  }
}
