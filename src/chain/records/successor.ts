// Has an attachment been made again since its record was written, so that nothing may be deleted?
//
// Another runtime that attaches a container again, after a reboot or a failed DEL, uses the same names: container id, interface
// and network. Plugins find what they delete by these names, and would delete what that runtime has made.

import { isOfEarlierBoot } from '../../attachments/boot.ts';
import { findGeneration, type Generation } from '../../attachments/generation.ts';
import {
  type AttachmentRecord,
  cacheFileOf,
  type HeldKnown,
  isEntryOf,
  toRemembered,
  tryEntry,
} from '../../attachments/store.ts';
import { runDir } from '../../cni/directories.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { ChainRuntime } from '../run/runtime.ts';
import { findConfigOfAdd } from './known-add.ts';

/**
 * Human-readable evidence that the attachment was made again since: its cached result or, if the record is of an earlier boot,
 * what the node has of it from this boot.
 * @throws CniError, NetlinkError when the node cannot be queried
 */
export async function findSuccessor(
  record: AttachmentRecord,
  runtime: ChainRuntime,
): Promise<string | undefined> {
  const { onWarning: _, ...quiet } = runtime;
  const within = { ...quiet, cacheDir: record.cacheDir };
  const later = findLaterEntry(record);
  if (later !== undefined) return later;
  // The first plugin of an ADD writes its generation before it makes anything.
  const note = findGeneration(runDir(runtime.env), record);
  const isEarlier = isOfEarlierBoot(record, runtime.env);
  if (note && !isOfEarlierBoot(note, runtime.env) && (isEarlier || isOfOthers(note, record)))
    return 'a plugin has started an ADD of it since';
  if (!isEarlier) return undefined;
  const list = findConfigOfAdd(toRemembered(record), within) ?? { name: record.network, plugins: [] };
  const witness = await runtime.openWitness?.();
  return witness?.findLife(list, record);
}

/** Human-readable evidence that an entry is of a later ADD than a record. */
export function findLaterEntry(record: AttachmentRecord): string | undefined {
  const entry = tryEntry(record.cacheDir, record);
  if (entry === undefined || isEntryOf(entry, record)) return undefined;
  return `cached result "${cacheFileOf(record.cacheDir, record)}" belongs to a later ADD`;
}

/**
 * Whether the note is of an ADD that is on no record of ours. Nothing tells if the network is one of a pod and named like the list that
 * names the delegate runner: the note may be that of the runtime's call of the runner.
 */
function isOfOthers(
  { isOurs, token }: Generation,
  { generation, network, owner }: AttachmentRecord,
): boolean {
  return !isOurs && token !== generation && owner.split(' ')[1] !== network;
}

/**
 * Drops the record, without calling plugins, if the attachment has been made again since.
 * @returns whether it has
 * @throws CniError, NetlinkError when that cannot be determined; the record stays
 */
export async function yieldToSuccessor(held: HeldKnown, runtime: ChainRuntime): Promise<boolean> {
  const { record } = held;
  const successor = await findSuccessor(record, runtime);
  if (successor === undefined) return false;
  warnAgain(record, successor, runtime);
  held.forget();
  return true;
}

/** Says that a record goes although nothing was deleted by it. */
export function warnAgain(
  { network, containerId, ifname, file }: AttachmentRecord,
  successor: string,
  { onWarning }: Pick<ChainRuntime, 'onWarning'>,
): void {
  onWarning?.(
    new CniError(
      ErrorCode.invalidConfig,
      `Cannot delete interface "${ifname}" of container "${containerId}" of network "${network}" by "${file}": it has since been attached again (${successor}); the record is dropped and the attachment stays`,
    ),
  );
}
