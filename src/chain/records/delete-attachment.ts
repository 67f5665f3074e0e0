// How is an attachment deleted, by DEL or after its runner has died?

import type { AttachmentId } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isOfEarlierBoot } from '../../journal/boot.ts';
import { type Claim, claimRecord } from '../../journal/claim.ts';
import { refuseElsewhere } from '../../journal/elsewhere.ts';
import { lastBegun } from '../../journal/lines.ts';
import { compareNetns } from '../../journal/netns-identity.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { markRemoval } from '../../journal/removal.ts';
import { dropUnclaimed } from '../../journal/store.ts';
import type { Conflist } from '../config/conflist.ts';
import { joinErrors } from '../run/plugin-errors.ts';
import { type Attachment, type ChainRuntime, cacheDirOf, deadlineOf } from '../run/runtime.ts';
import { undoPlugins } from '../run/undo.ts';
import { toRecorded } from './add-record.ts';
import { forgetIfDetached, yieldToItsRuntime } from './adopted-attachments.ts';
import { findConfigOfAdd, idOf, withCachedArgs } from './config-of-add.ts';
import { waitLimit } from './holder-wait.ts';
import { waitForOrphanProcesses } from './orphan-wait.ts';
import { chooseRemembered, findCached, findRecord, toRemembered } from './remembered-add.ts';
import { removeAttachment } from './result-cache.ts';
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
  if (isStill === undefined) return deleteFound(list, attachment, runtime);
  // Not asked for by the runtime: it may add the attachment again during the removal.
  await underRemovalMark(idOf(list, attachment), runtime, mark =>
    deleteFound(list, attachment, runtime, record => {
      mark();
      return isStill(record);
    }),
  );
}

async function deleteFound(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  isStill?: IsStill,
): Promise<void> {
  const id = idOf(list, attachment);
  // A record that cannot be written, as on a full disk, can still be read. If not, claiming has already warned.
  const { onWarning: _, ...quiet } = runtime;
  for (;;) {
    const recorded = findRecord(id, quiet);
    if (recorded) refuseElsewhere(recorded, runtime.env);
    const claim = await acquireClaim(id, runtime, isStill, 'read');
    const before = claim?.record ?? findRecord(id, quiet);
    if (claim === undefined && isStill?.(before) === false) return;
    await deleteOnce(list, attachment, runtime, { id, claim, found: before });
    // Without a record, nothing keeps an ADD from beginning during this DEL. What that ADD had made so far is deleted, so the
    // rest has to be deleted too: no record may say that the attachment exists.
    const begun = claim === undefined && before === undefined ? findRecord(id, quiet) : undefined;
    if (begun === undefined) return;
    const { stateDir } = runtime;
    // An adoption at that moment has not seen that the attachment is being deleted.
    if (stateDir !== undefined && (await forgetIfDetached(stateDir, begun, runtime))) return;
    if (isStill) return;
  }
}

async function deleteOnce(
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  { id, claim, found }: { id: AttachmentId; claim: Claim | undefined; found: AttachmentRecord | undefined },
): Promise<void> {
  await underClaim(id, { claim, found }, runtime, async () => {
    if (found) await waitForOrphanProcesses(found, runtime);
    const known = chooseRemembered(found, findCached(id, runtime));
    const frozen = findConfigOfAdd(known, runtime) ?? list;
    // If another runtime has made the attachment again, our record's namespace is not the attachment's.
    const record = known?.file === undefined ? undefined : found;
    const asAdded = withCachedArgs(withOwnNetns(attachment, record, runtime), known);
    return undoPlugins(frozen, frozen.plugins.length - 1, asAdded, runtime, known?.result);
  });
}

/**
 * Deletes an attachment using only its claimed record: DEL of the plugins that may have begun. If the attachment has been made
 * again since, nothing is deleted and the record is dropped.
 * @returns whether the attachment was deleted
 * @throws CniError as deleteAttachment(), 6 when the record's configuration cannot be used
 */
export function deleteClaimed(claim: Claim, runtime: ChainRuntime): Promise<boolean> {
  return underRemovalMark(claim.record, runtime, mark => deleteMarked(claim, runtime, mark));
}

/**
 * Does work that deletes an attachment on our own account. From the moment it calls `mark` until it has ended, an ADD of the same
 * attachment waits.
 */
async function underRemovalMark<T>(
  id: AttachmentId,
  { env }: ChainRuntime,
  work: (mark: () => void) => Promise<T>,
): Promise<T> {
  let unmark: (() => void) | undefined;
  try {
    return await work(() => {
      unmark ??= markRemoval(runDir(env), id);
    });
  } finally {
    unmark?.();
  }
}

async function deleteMarked(claim: Claim, runtime: ChainRuntime, mark: () => void): Promise<boolean> {
  const { record } = claim;
  const { network, containerId, ifname } = record;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
  const id = { network, containerId, ifname };
  try {
    await waitForOrphanProcesses(record, reaching);
    // Not before: one of them may be an ADD that waits while a mark is there.
    mark();
    if (await yieldToSuccessor(claim, reaching)) return false;
    if (await yieldToItsRuntime(claim, reaching)) return false;
  } catch (error) {
    await underClaim(id, { claim, found: record }, reaching, () => Promise.reject(error));
  }
  await underClaim(id, { claim, found: record }, reaching, async () => {
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
 * Claims the attachment in order to delete it, waiting while another process works on it. Undefined when there is no record
 * or no usable one, which must not prevent DEL, or when the attachment is no longer `wanted`.
 * @param unwritable how to treat a record that can only be read. `refuse` throws, because a caller that does only part of a DEL
 *   must not conclude that there is no record; `read` leaves it to the caller
 * @throws CniError 11 when it has waited long enough; 5 when the record cannot be written to
 */
export async function acquireClaim(
  id: AttachmentId,
  runtime: ChainRuntime,
  wanted?: Wanted,
  unwritable: Unwritable = wanted ? 'refuse' : 'read',
): Promise<Claim | undefined> {
  const wait = waitLimit(id, runtime);
  for (;;) {
    const claim = tryClaim(id, runtime, wanted, unwritable);
    if (claim === undefined || !('holder' in claim)) return claim;
    await wait(claim.holder);
  }
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

/** @param work returns the errors */
async function underClaim(
  id: AttachmentId,
  { claim, found }: { readonly claim: Claim | undefined; readonly found: AttachmentRecord | undefined },
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
    else if (runtime.stateDir !== undefined) dropUnclaimed(runtime.stateDir, id, found);
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

type Wanted = (record: AttachmentRecord) => boolean;
type Unwritable = 'refuse' | 'read';

/** Whether the record found for an attachment, or none, is the expected one. */
export type IsStill = (record: AttachmentRecord | undefined) => boolean;

function tryClaim(
  id: AttachmentId,
  runtime: ChainRuntime,
  wanted: Wanted | undefined,
  unwritable: Unwritable,
): ReturnType<typeof claimRecord> {
  const { stateDir, onWarning } = runtime;
  if (stateDir === undefined) return undefined;
  try {
    return claimRecord(stateDir, id, wanted, 'DEL', deadlineOf(runtime, 'DEL'));
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    if (unwritable === 'refuse' && error.code === ErrorCode.ioFailure) throw error;
    onWarning?.(error);
    return undefined;
  }
}
