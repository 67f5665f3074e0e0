// How do processes that add networks to one container wait for each other?
//
// The name of an interface is chosen by looking which ones are free, and plugins of foreign make delete an interface by its name.
// So only one process at a time may choose a name in a container. Few locks serve all containers: their files stay.
import { join } from 'node:path';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { digestOf } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { holdFlock } from '../../sys/flock.ts';

const PAUSE_MS = 20;

/**
 * Does the work while no other process adds networks to the container or removes them.
 * @param waitMs how long to wait for another one
 * @throws CniError 11 if that was not long enough
 */
export async function withContainer<T>(
  containerId: string,
  { env, signal }: Pick<ChainRuntime, 'env' | 'signal'>,
  waitMs: number,
  work: () => Promise<T>,
): Promise<T> {
  const path = join(runDir(env), 'running', `${digestOf(containerId).slice(-2)}.lock`);
  const giveUpAt = performance.now() + waitMs;
  for (;;) {
    const release = holdFlock(path, { mode: 0o600, directoryMode: 0o700 });
    if (release) {
      try {
        return await work();
      } finally {
        release();
      }
    }
    if (performance.now() > giveUpAt || signal?.aborted) throw busy(containerId, path);
    await Bun.sleep(PAUSE_MS);
  }
}

function busy(containerId: string, path: string): CniError {
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot change the networks of container "${containerId}": another process does, and holds "${path}"; try again later`,
  );
}
