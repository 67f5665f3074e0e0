// How does a pod lose all that its record names, and nothing stay behind unnoticed?
import type { CachedAttachment } from '../chain/cache-record.ts';
import { parseFrozen } from '../chain/conflist.ts';
import { joinErrors } from '../chain/link-errors.ts';
import { listAttachments } from '../chain/result-cache.ts';
import { deleteNetwork } from '../chain/run.ts';
import type { Attachment } from '../chain/runtime.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import {
  listRecords,
  netnsIdOf,
  type PodKey,
  type PodRecord,
  readRecord,
  recall,
  removeRecord,
  writeRecord,
} from './record.ts';
import { type Runner, runtimeOf } from './runner.ts';

/**
 * Detaches a pod from every network on record, last first, whatever happens to the others. Each leaves the record
 * when its own DEL has succeeded. No configuration of today is looked at. A pod without a record has nothing.
 * @param netns path of the namespace; may be empty when it is gone
 * @throws CniError of the network that failed, or one that joins several
 */
export async function deletePod(runner: Runner, key: PodKey, netns: string): Promise<void> {
  const record = findRecord(runner, key);
  const errors =
    record === undefined
      ? await deleteUnrecorded(runner, key, netns)
      : await deleteRecorded(runner, record, sameNamespace(runner, record, netns));
  if (!errors.length) {
    removeRecord(runner.recordDir, key);
    return;
  }
  throw joinErrors(`Cannot delete the networks of container "${key.containerId}"`, errors);
}

/**
 * DEL of the recorded networks, last first; the record is kept up with it.
 * @returns the errors of those that failed
 */
export async function deleteRecorded(runner: Runner, record: PodRecord, netns: string): Promise<unknown[]> {
  const errors: unknown[] = [];
  const runtime = runtimeOf(runner, record);
  let left = record.networks;
  for (const network of record.networks.toReversed()) {
    try {
      const { list, attachment } = recall(record, network, netns);
      await deleteNetwork(list, attachment, runtime);
      left = left.filter(one => one !== network);
      if (left.length) writeRecord(runner.recordDir, { ...record, networks: left });
    } catch (error) {
      errors.push(error);
    }
  }
  if (!left.length) removeRecord(runner.recordDir, record);
  return errors;
}

/** A damaged record is none; the result cache then has to say what there is. */
function findRecord(runner: Runner, key: PodKey): PodRecord | undefined {
  try {
    return readRecord(runner.recordDir, key);
  } catch (error) {
    if (!(error instanceof CniError && error.code === ErrorCode.decodingFailure)) throw error;
    runner.warn(`${error.message}; the result cache stands in for it`);
    return undefined;
  }
}

/** What the result cache knows of the container, and no record of it: records get lost, too. */
async function deleteUnrecorded(runner: Runner, key: PodKey, netns: string): Promise<unknown[]> {
  const { cacheDir } = runner.runtime;
  const { attachments, damaged } = listAttachments(cacheDir, { containerId: key.containerId });
  for (const problem of damaged) runner.warn(problem.message);
  if (!attachments.length) return [];
  const others = listRecords(runner.recordDir).records.filter(one => one.containerId === key.containerId);
  const recorded = others.flatMap(({ networks }) => networks);
  const errors: unknown[] = [];
  for (const one of attachments) {
    if (recorded.some(({ network, ifname }) => network === one.network && ifname === one.ifname)) continue;
    if (one.source === undefined) continue;
    try {
      await deleteNetwork(parseFrozen(one.source), attachmentOf(one, netns), runner.runtime);
    } catch (error) {
      errors.push(error);
    }
  }
  return errors;
}

function attachmentOf(
  { containerId, ifname, args, capabilityArgs }: CachedAttachment,
  netns: string,
): Attachment {
  return { containerId, ifname, args, capabilityArgs, netns };
}

/** A path that leads to another namespace by now is nobody's: what is in there must not be touched. */
function sameNamespace(runner: Runner, { netnsId, containerId }: PodRecord, netns: string): string {
  const now = netnsIdOf(netns);
  if (now === '' || netnsId === '' || now === netnsId) return netns;
  runner.warn(`"${netns}" is not the namespace that ADD was for any more`, { container_id: containerId });
  return '';
}
