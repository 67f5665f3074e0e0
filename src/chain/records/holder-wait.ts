// How does an operation get the right to work on an attachment, and how long does it wait for another one?

import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { endFrozen, isFrozen } from '../../files/frozen-process.ts';
import { buryOwner, type Lock, type Purpose, takeLock } from '../../journal/lock.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import type { Runner } from '../../journal/runner.ts';
import { holderOf } from '../../journal/runner.ts';
import { type ChainRuntime, deadlineOf } from '../run/runtime.ts';
import { findRecord } from './remembered-add.ts';

/** Longest wait for another process that works on the attachment. */
const WAIT_MS = 30_000;
/** Longest wait for a process that is stopped. */
const FROZEN_MS = 1_000;
const LOOK_AGAIN_MS = 50;

/** The right to work on an attachment, and its record as it is then; undefined if there is none, or none that can be used. */
export interface Held {
  readonly lock: Lock;
  readonly record: AttachmentRecord | undefined;
}

/**
 * Takes the lock of an attachment. Waits while another process has it.
 * @returns undefined without a journal; also if a DEL, which must go on, cannot write to the run directory, with a warning
 * @throws CniError 11 when it has waited long enough; 5 when the lock cannot be taken
 */
export function hold(
  id: AttachmentId,
  runtime: ChainRuntime & { readonly stateDir: string },
  purpose: Exclude<Purpose, 'del'>,
): Promise<Held>;
export function hold(id: AttachmentId, runtime: ChainRuntime, purpose: Purpose): Promise<Held | undefined>;
export async function hold(
  id: AttachmentId,
  runtime: ChainRuntime,
  purpose: Purpose,
): Promise<Held | undefined> {
  const { stateDir, env, onWarning } = runtime;
  if (stateDir === undefined) return undefined;
  const place = { stateDir, env };
  const wait = waitLimit(id, runtime);
  const deadlineMs = deadlineOf(runtime, VERBS[purpose]);
  for (;;) {
    let lock: ReturnType<typeof takeLock>;
    try {
      lock = takeLock(place, id, purpose, deadlineMs);
    } catch (error) {
      if (!(error instanceof CniError) || purpose !== 'del') throw error;
      onWarning?.(error);
      return undefined;
    }
    let holder = 'holder' in lock ? lock.holder : undefined;
    if (!('holder' in lock)) {
      const record = findRecord(id, runtime);
      // The run directory may have been lost.
      holder = record && holderOf(record);
      if (holder === undefined) return { lock, record };
      lock.release();
    }
    if (holder && (await wait(holder))) buryOwner(place, id, holder);
  }
}

/** The verb whose deadline ends the plugins of an operation. */
const VERBS = { add: 'ADD', del: 'DEL', remove: 'DEL', change: 'CHECK', repair: 'CHECK' } as const;

/**
 * Waits for the process that works on an attachment: a moment per call, up to a limit for all calls together. One that is
 * stopped (SIGSTOP, a frozen cgroup) is killed after a moment, with its workers: it must not continue later.
 * @returns the function to call, which tells whether it has killed it, and throws CniError 11 when the limit is reached
 */
function waitLimit(
  id: AttachmentId,
  { signal, onWarning }: ChainRuntime,
): (holder: Runner) => Promise<boolean> {
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
      return true;
    }
    if (elapsed > WAIT_MS || signal?.aborted) {
      throw new CniError(
        ErrorCode.tryAgainLater,
        `Cannot work on interface "${id.ifname}" of container "${id.containerId}" of network "${id.network}": process ${pid} has been working on it since ${time}`,
      );
    }
    await pause();
    return false;
  };
}

/** node:timers/promises would be one more module to load for every chain. */
export function pause(): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MS));
}
