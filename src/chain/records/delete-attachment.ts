// How is an attachment deleted, by DEL or after its runner has died?
//
// Another runtime that attaches a container again, after a reboot or a failed DEL, uses the same names: container id, interface
// and network. Plugins find what they delete by these names, and would delete what that runtime has made.
import { type Held, type HeldKnown, hold, type KnownAttachment, pastOf } from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, decodingFailure, ErrorCode, orTell } from '../../cni/errors.ts';
import { isOfEarlierBoot } from '../../files/process-stat.ts';
import type { Conflist } from '../config/conflist.ts';
import { joinErrors, undoPlugins } from '../run/call-plugins.ts';
import { type Attachment, type ChainRuntime, holdCall, withRecordedDirs } from '../run/runtime.ts';
import { findCached, findConfigOfAdd, idOf, withCachedArgs } from './known-add.ts';

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
  const held = await hold(id, holdCall(runtime, 'del'));
  try {
    // Not asked for by the runtime: it may add the attachment again during the removal.
    if (isStill) held.become('remove');
    if (isStill?.(held.life) !== false) await deleteAs(held, list, attachment, runtime);
  } finally {
    held.release();
  }
}

/**
 * The same for one that is held.
 * @param last what was known of it, if its runtime may have deleted the entry since
 */
export async function deleteAs(
  held: Held,
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
  last?: KnownAttachment,
): Promise<void> {
  const { record } = held;
  const id = idOf(list, attachment);
  beginDel(held, runtime);
  await endDel(held, whatOf(id), async () => {
    await held.awaitOrphans();
    const known = record ?? findCached(id, runtime) ?? last;
    const frozen = findConfigOfAdd(known, runtime) ?? list;
    const asAdded = withCachedArgs(withOwnNetns(attachment, record, runtime), known);
    return undoPlugins(frozen, frozen.plugins.length - 1, asAdded, runtime, known?.result);
  });
}

/** Says that a DEL begins, which a full or read-only disk must not keep from going on. */
export function beginDel(held: Held, { onWarning }: Pick<ChainRuntime, 'onWarning'>): void {
  orTell(onWarning, () => held.beginDel());
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
  const reaching = withRecordedDirs(runtime, record);
  return await endDel(held, whatOf(record), async () => {
    await held.awaitOrphans();
    // Not before: one of them may be an ADD that waits for the end of a removal.
    held.become('remove');
    if (await yieldToSuccessor(held, reaching)) return undefined;
    const frozen = findConfigOfAdd(record, reaching);
    if (frozen === undefined) {
      throw decodingFailure(
        `Cannot delete interface "${ifname}" of container "${containerId}": the configuration in "${record.file}" cannot be used; run DEL with the network's own configuration`,
      );
    }
    const attachment = withOwnNetns(record, record, reaching);
    return undoPlugins(frozen, held.lastBegun(frozen.plugins.length), attachment, reaching, record.result);
  });
}

/**
 * Drops the namespace if its path already belongs to another one: plugins would delete interfaces of another container. No
 * namespace outlives a boot, but inode numbers and cookies start again in each boot and may match by chance.
 */
export function withOwnNetns(
  attachment: Attachment,
  record: KnownAttachment | undefined,
  { onWarning, env }: Pick<ChainRuntime, 'onWarning' | 'env'>,
): Attachment {
  const { netns, containerId } = attachment;
  if (netns === '' || record === undefined) return attachment;
  if (isOfEarlierBoot(record, env)) return { ...attachment, netns: '' };
  if (pastOf(record, env).netns(netns) !== 'other') return attachment;
  onWarning?.(
    new CniError(
      ErrorCode.invalidNetns,
      `Cannot use "${netns}" as namespace of container "${containerId}": it is no longer the namespace of its ADD; treating it as deleted`,
    ),
  );
  return { ...attachment, netns: '' };
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

/** Whether the attachment found, or none, is the expected one: told by {@link Held.life}. */
export type IsStill = (life: string) => boolean;

/**
 * Drops the record, without calling plugins, if the attachment has been made again since. Its entry or its generation tells or, if the record
 * is of an earlier boot, what the node has of it from this boot.
 * @returns whether it has
 * @throws CniError, NetlinkError when that cannot be determined; the record stays
 */
export async function yieldToSuccessor(held: HeldKnown, runtime: ChainRuntime): Promise<boolean> {
  const { record } = held;
  let successor = held.findLaterAdd();
  if (successor === undefined && isOfEarlierBoot(record, runtime.env)) {
    const { onWarning: _, ...quiet } = runtime;
    const list = findConfigOfAdd(record, quiet) ?? { name: record.network, plugins: [] };
    successor = await (await runtime.openWitness?.())?.findLife(list, record);
  }
  if (successor !== undefined) held.yieldTo(successor);
  return successor !== undefined;
}
