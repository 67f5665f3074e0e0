// Who may change what several containers share: the bridge, and the gateways on it?
import { runDir } from '../../../src/cni/directories.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { withFlock } from '../../../src/sys/flock.ts';
import { ownNetns } from '../../../src/sys/netns.ts';

/** Holders do a few kernel requests; the longest, removing a bridge, waits for grace periods. */
const LOCK_DEADLINE_MS = 20_000;

/**
 * Runs a step in which the bridge must neither appear nor go by another hand of ours: attaching the first port and
 * removing the bridge after the last one would otherwise cross.
 * @throws CniError 11 when the lock cannot be had in time
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
