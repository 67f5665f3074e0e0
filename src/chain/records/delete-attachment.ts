// How is an attachment deleted, by DEL or after its runner has died?

import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isOfEarlierBoot } from '../../journal/boot.ts';
import { type Claim, claimOf } from '../../journal/claim.ts';
import { refuseElsewhere } from '../../journal/elsewhere.ts';
import { removeAttachment } from '../../journal/entries.ts';
import { lastBegun } from '../../journal/lines.ts';
import type { Lock } from '../../journal/lock.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import { type AttachmentRecord, toRemembered } from '../../journal/record.ts';
import { dropRecord } from '../../journal/store.ts';
import type { Conflist } from '../config/conflist.ts';
import { joinErrors } from '../run/plugin-errors.ts';
import { type Attachment, type ChainRuntime, cacheDirOf } from '../run/runtime.ts';
import { undoPlugins } from '../run/undo.ts';
import { toRecorded } from './add-record.ts';
import { findConfigOfAdd, idOf, withCachedArgs } from './config-of-add.ts';
import { hold } from './holder-wait.ts';
import { waitForOrphanProcesses } from './orphan-wait.ts';
import { findCached, findRecord } from './remembered-add.ts';
import { yieldToSuccessor } from './successor.ts';

/**
 * Calls DEL of every plugin, last first, with the configuration, arguments and result of the ADD if they are known. Record and
 * cached result are deleted when all have succeeded. Otherwise the failures are kept in the record for the next attempt.
 * @param isStill whether the attachment found is the one meant; nothing is done if it returns false
 * @throws CniError of the plugin that failed, or one error that joins several; 11 while another process works on it
 */
export async function deleteAttachment(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  isStill?: IsStill,
): Promise<void> {
  const id = idOf(list, attachment);
  const held = await hold(id, runtime, 'del');
  try {
    // Without the lock, a record can still be read; taking it has already warned.
    const { onWarning: _, ...quiet } = runtime;
    const found = held ? held.record : findRecord(id, quiet);
    if (found) refuseElsewhere(found, runtime.env);
    // Not asked for by the runtime: it may add the attachment again during the removal.
    if (isStill) held?.lock.become('remove');
    if (isStill?.(found) === false) return;
    const { stateDir } = runtime;
    const claim =
      held?.record && stateDir !== undefined ? claimOf(stateDir, held.record, held.lock) : undefined;
    const isNoted = claim !== undefined && begins(claim, runtime);
    await deleteOnce(list, attachment, runtime, {
      id,
      claim: isNoted ? claim : undefined,
      found: claim?.record ?? found,
      lock: held?.lock,
    });
  } finally {
    held?.lock.release();
  }
}

/** Says that a DEL begins, which a full or read-only disk must not keep from going on. @returns false there, with a warning */
export function begins(claim: Claim, { onWarning }: Pick<ChainRuntime, 'onWarning'>): boolean {
  try {
    claim.begin();
    return true;
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    onWarning?.(error);
    return false;
  }
}

async function deleteOnce(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  { id, claim, found, lock }: Deletion & { readonly id: AttachmentId; readonly lock: Lock | undefined },
): Promise<void> {
  await underClaim(id, claim, runtime, async () => {
    const runners = lock?.dead ?? [];
    await waitForOrphanProcesses({ record: found ?? { ...id, runners }, lock }, runtime);
    const known = found ? toRemembered(found) : findCached(id, runtime);
    const frozen = findConfigOfAdd(known, runtime) ?? list;
    const asAdded = withCachedArgs(withOwnNetns(attachment, found, runtime), known);
    return undoPlugins(frozen, frozen.plugins.length - 1, asAdded, runtime, known?.result);
  });
}

/**
 * Deletes an attachment using only its claimed record: DEL of the plugins that may have begun. If the attachment has been made
 * again since, nothing is deleted and the record is dropped.
 * @returns whether the attachment was deleted
 * @throws CniError as deleteAttachment(), 6 when the record's configuration cannot be used
 */
export async function deleteClaimed(claim: Claim, runtime: ChainRuntime): Promise<boolean> {
  const { record } = claim;
  const { network, containerId, ifname } = record;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
  const id = { network, containerId, ifname };
  try {
    await waitForOrphanProcesses(claim, reaching);
    // Not before: one of them may be an ADD that waits for the end of a removal.
    claim.lock.become('remove');
    if (await yieldToSuccessor(claim, reaching)) return false;
  } catch (error) {
    await underClaim(id, claim, reaching, () => Promise.reject(error));
  }
  await underClaim(id, claim, reaching, async () => {
    const known = toRemembered(record);
    const frozen = findConfigOfAdd(known, reaching);
    if (frozen === undefined) {
      throw new CniError(
        ErrorCode.decodingFailure,
        `Cannot delete interface "${ifname}" of container "${containerId}": the configuration in "${record.file}" cannot be used; run DEL with the network's own configuration`,
      );
    }
    const { netns, args, capabilityArgs } = record;
    const attachment = withOwnNetns({ containerId, ifname, netns, args, capabilityArgs }, record, reaching);
    return undoPlugins(frozen, lastBegun(record, frozen.plugins.length), attachment, reaching, known.result);
  });
  return true;
}

/**
 * Drops the namespace if its path already belongs to another one: plugins would delete interfaces of another container. No
 * namespace outlives a boot, but inode numbers and cookies start again in each boot and may match by chance.
 */
function withOwnNetns(
  attachment: Attachment,
  record: AttachmentRecord | undefined,
  { onWarning, env }: Pick<ChainRuntime, 'onWarning' | 'env'>,
): Attachment {
  const { netns, containerId } = attachment;
  if (netns === '' || record === undefined) return attachment;
  if (isOfEarlierBoot(record, env)) return { ...attachment, netns: '' };
  if (compareNetns(netns, record) !== 'other') return attachment;
  onWarning?.(
    new CniError(
      ErrorCode.invalidNetns,
      `Cannot use "${netns}" as namespace of container "${containerId}": it is no longer the namespace of its ADD; treating it as deleted`,
    ),
  );
  return { ...attachment, netns: '' };
}

/** Adds the directories in which the ADD found its plugins, after the caller's. */
export function withRecordedDirs(runtime: ChainRuntime, { pluginDirs }: AttachmentRecord): ChainRuntime {
  const more = pluginDirs.filter(dir => !runtime.pluginDirs.includes(dir));
  return more.length ? { ...runtime, pluginDirs: [...runtime.pluginDirs, ...more] } : runtime;
}

/** What is deleted: its record, and the claim if that could be written to. */
interface Deletion {
  readonly claim: Claim | undefined;
  readonly found: AttachmentRecord | undefined;
}

/** @param work returns the errors */
async function underClaim(
  id: AttachmentId,
  claim: Claim | undefined,
  runtime: ChainRuntime,
  work: () => Promise<unknown[]>,
): Promise<void> {
  let errors: readonly unknown[];
  try {
    errors = await work();
    if (!errors.length) removeAttachment(cacheDirOf(runtime), id);
  } catch (error) {
    errors = [error];
  }
  if (!errors.length) {
    if (claim) claim.drop();
    // No ADD begins without a lock either, so no other process has put one in its place.
    else if (runtime.stateDir !== undefined) dropRecord(runtime.stateDir, id);
    return;
  }
  try {
    claim?.fail(errors.map(toRecorded));
  } catch (error) {
    errors = [...errors, error];
  }
  throw joinErrors(
    `Cannot delete interface "${id.ifname}" of container "${id.containerId}" from network "${id.network}"`,
    errors,
  );
}

/** Whether the record found for an attachment, or none, is the expected one. */
export type IsStill = (record: AttachmentRecord | undefined) => boolean;
