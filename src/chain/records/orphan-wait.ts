// How long does an operation wait for plugins of a runner that died?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { sweepCache } from '../../journal/entries.ts';
import type { Lock } from '../../journal/lock.ts';
import { endOrphanProcesses, findOrphanProcesses, wasCutOff } from '../../journal/orphan-processes.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { GRACE_MS } from '../run/process-group.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { pause } from './holder-wait.ts';

/** An attachment that dead runners may have been working on, and its lock if that could be taken. */
interface WithOrphans {
  readonly record: Pick<AttachmentRecord, 'containerId' | 'ifname' | 'runners'>;
  readonly lock?: Lock | undefined;
}

/** Longest wait for plugins whose runner has died. */
const ORPHAN_PROCESSES_MS = 5_000;

/**
 * Waits for plugins of a dead runner, and ends those that are past the deadline which the runner had set: what a plugin makes
 * after its DEL would leak. Also deletes the runner's temporary files.
 */
export async function waitForOrphanProcesses(
  { record, lock }: WithOrphans,
  runtime: ChainRuntime,
): Promise<void> {
  const { containerId, ifname } = record;
  const until = performance.now() + ORPHAN_PROCESSES_MS;
  for (;;) {
    const processes = findOrphanProcesses(record);
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
    } else await pause();
  }
  lock?.forgetDead();
  if (wasCutOff(record)) sweepCache(cacheDirOf(runtime));
}
