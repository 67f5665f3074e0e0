// With which limits does an operation hold an attachment, and wait for plugins of a runner that died?

import type { Purpose } from '../../attachments/lock.ts';
import { endOrphanProcesses, findOrphanProcesses, wasCutOff } from '../../attachments/orphan-processes.ts';
import { type Held, type HoldCall, hold as holdInJournal, sweepCache } from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { pause } from '../../wait.ts';
import { GRACE_MS } from '../run/process-group.ts';
import { type ChainRuntime, cacheDirOf, deadlineOf } from '../run/runtime.ts';

/** @throws CniError as holdInJournal() */
export function hold(id: AttachmentId, runtime: ChainRuntime, purpose: Purpose): Promise<Held> {
  return holdInJournal(id, holdCall(runtime, purpose));
}

/** What a runtime says of how it holds attachments. */
export function holdCall(runtime: ChainRuntime, purpose: Purpose): HoldCall {
  return { ...runtime, purpose, deadlineMs: deadlineOf(runtime, VERBS[purpose]) };
}

/** The verb whose deadline ends the plugins of an operation. */
const VERBS = { add: 'ADD', del: 'DEL', remove: 'DEL', change: 'CHECK', repair: 'CHECK' } as const;

/** Longest wait for plugins whose runner has died. */
const ORPHAN_PROCESSES_MS = 5_000;
const LOOK_AGAIN_MS = 50;

/**
 * Waits for plugins of a dead runner, and ends those that are past the deadline which the runner had set: what a plugin makes
 * after its DEL would leak. Also deletes the runner's temporary files.
 */
export async function waitForOrphanProcesses(
  held: Pick<Held, 'orphans' | 'forgetDead'>,
  runtime: ChainRuntime,
): Promise<void> {
  const { orphans } = held;
  const { containerId, ifname } = orphans;
  const until = performance.now() + ORPHAN_PROCESSES_MS;
  for (;;) {
    const processes = findOrphanProcesses(orphans);
    const [first] = processes;
    if (first === undefined) break;
    const overdue = processes.filter(({ isOverdue }) => isOverdue);
    if (performance.now() > until) {
      const end = overdue.length
        ? 'SIGKILL does not end it'
        : 'it is ended at its deadline; try again after that';
      throw new CniError(
        ErrorCode.tryAgainLater,
        `Cannot work on interface "${ifname}" of container "${containerId}": process ${first.pid}, a plugin whose runner died, is still working on it; ${end}`,
      );
    }
    if (overdue.length) {
      const pids = overdue.map(({ pid }) => pid).join(', ');
      runtime.onWarning?.(
        new CniError(
          ErrorCode.unknown,
          `Ending process ${pids}, which is working on interface "${ifname}" of container "${containerId}": its runner died and its deadline has passed`,
        ),
      );
      await endOrphanProcesses(overdue, GRACE_MS);
    } else await pause(LOOK_AGAIN_MS);
  }
  held.forgetDead();
  if (wasCutOff(orphans)) sweepCache(cacheDirOf(runtime));
}
