// How long does an operation wait for another process that works on the same attachment?

import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { endFrozen, isFrozen } from '../../files/frozen-process.ts';
import type { Runner } from '../../journal/runner.ts';
import type { ChainRuntime } from '../run/runtime.ts';

/** Longest wait for another process that works on the attachment. */
const WAIT_MS = 30_000;
/** Longest wait for a process that is stopped. */
const FROZEN_MS = 1_000;
const LOOK_AGAIN_MS = 50;

/**
 * Waits for the process that works on an attachment: a moment per call, up to a limit for all calls together. One that is
 * stopped (SIGSTOP, a frozen cgroup) is killed after a moment, with its workers: it must not continue later.
 * @returns the function to call, which throws CniError 11 when the limit is reached
 */
export function waitLimit(
  id: AttachmentId,
  { signal, onWarning }: ChainRuntime,
): (holder: Runner) => Promise<void> {
  const begin = performance.now();
  return async holder => {
    const { pid, time } = holder;
    const elapsed = performance.now() - begin;
    if (elapsed > FROZEN_MS && (await isFrozen(holder)) && (await endFrozen(holder))) {
      onWarning?.(
        new CniError(
          ErrorCode.unknown,
          `Ended process ${pid}, which was stopped while it worked on interface "${id.ifname}" of container "${id.containerId}"`,
        ),
      );
      return;
    }
    if (elapsed > WAIT_MS || signal?.aborted) {
      throw new CniError(
        ErrorCode.tryAgainLater,
        `Cannot work on interface "${id.ifname}" of container "${id.containerId}" of network "${id.network}": process ${pid} has been working on it since ${time}`,
      );
    }
    await pause();
  };
}

/** node:timers/promises would be one more module to load for every chain. */
export function pause(): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MS));
}
