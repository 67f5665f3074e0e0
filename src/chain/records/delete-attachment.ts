// How is an attachment deleted, by DEL or after its runner has died?

import { isOfEarlierBoot } from '../../attachments/boot.ts';
import { findNetns } from '../../attachments/past.ts';
import {
  type AttachmentRecord,
  type Held,
  type HeldKnown,
  lastBegun,
  toRemembered,
} from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { Conflist } from '../config/conflist.ts';
import { joinErrors } from '../run/plugin-errors.ts';
import type { Attachment, ChainRuntime } from '../run/runtime.ts';
import { undoPlugins } from '../run/undo.ts';
import { hold, waitForOrphanProcesses } from './hold.ts';
import { findCached, findConfigOfAdd, idOf, withCachedArgs } from './known-add.ts';
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
    const { record } = held;
    // Not asked for by the runtime: it may add the attachment again during the removal.
    if (isStill) held.become('remove');
    if (isStill?.(record) === false) return;
    beginDel(held, runtime);
    await endDel(held, whatOf(id), async () => {
      await waitForOrphanProcesses(held, runtime);
      const known = record ? toRemembered(record) : findCached(id, runtime);
      const frozen = findConfigOfAdd(known, runtime) ?? list;
      const asAdded = withCachedArgs(withOwnNetns(attachment, record, runtime), known);
      return undoPlugins(frozen, frozen.plugins.length - 1, asAdded, runtime, known?.result);
    });
  } finally {
    held.release();
  }
}

/** Says that a DEL begins, which a full or read-only disk must not keep from going on. */
export function beginDel(held: Held, { onWarning }: Pick<ChainRuntime, 'onWarning'>): void {
  try {
    held.beginDel();
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    onWarning?.(error);
  }
}

/**
 * Deletes an attachment whose DEL has begun, using only its record: DEL of the plugins that may have begun. If the attachment has been made
 * again since, nothing is deleted and the record is dropped.
 * @returns whether the attachment was deleted
 * @throws CniError as deleteAttachment(), 6 when the record's configuration cannot be used
 */
export async function deleteHeld(held: HeldKnown, runtime: ChainRuntime): Promise<boolean> {
  const { record } = held;
  const { containerId, ifname } = record;
  const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
  return await endDel(held, whatOf(record), async () => {
    await waitForOrphanProcesses(held, reaching);
    // Not before: one of them may be an ADD that waits for the end of a removal.
    held.become('remove');
    if (await yieldToSuccessor(held, reaching)) return undefined;
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
  if (findNetns(record, env, netns) !== 'other') return attachment;
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

function whatOf({ network, containerId, ifname }: AttachmentId): string {
  return `Cannot delete interface "${ifname}" of container "${containerId}" from network "${network}"`;
}

/**
 * Does the work of a DEL that has begun. What is known of the attachment goes if that succeeds; failures are noted for the next attempt.
 * @param what cannot be done if it fails, human-readable
 * @param work returns the errors, or undefined if the attachment stays
 * @returns whether the attachment was deleted
 * @throws CniError that joins what failed
 */
export async function endDel(
  held: Held,
  what: string,
  work: () => Promise<readonly unknown[] | undefined>,
): Promise<boolean> {
  let errors: readonly unknown[] | undefined;
  try {
    errors = await work();
    if (errors === undefined) return false;
    if (errors.length === 0) {
      held.drop();
      return true;
    }
  } catch (error) {
    errors = [error];
  }
  try {
    held.fail(errors);
  } catch (error) {
    errors = [...errors, error];
  }
  throw joinErrors(what, errors);
}

/** Whether the record found for an attachment, or none, is the expected one. */
export type IsStill = (record: AttachmentRecord | undefined) => boolean;
