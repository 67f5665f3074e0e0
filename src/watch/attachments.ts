// Which attachments does this host have, whichever runtime made them, and which host devices lead to them?
import { withRecordedDirs } from '../chain/records/delete-attachment.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { type AttachmentId, keyOf } from '../cni/attachment.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { isElsewhere } from '../journal/elsewhere.ts';
import {
  type AttachmentRecord,
  type CachedAttachment,
  type KnownAttachment,
  knownLister,
  type Lister,
} from '../journal/store.ts';

/** An attachment that was made and not deleted, as far as the files say. */
export interface WatchedAttachment {
  readonly id: AttachmentId;
  readonly key: string;
  /** What its ADD was called with, and its result. */
  readonly known: CachedAttachment;
  /** The journal and its record; undefined if another runtime made it, and only libcni's cache has it. */
  readonly recorded: { readonly stateDir: string; readonly record: AttachmentRecord } | undefined;
  /** Names of the devices of its result that are on the host. */
  readonly devices: readonly string[];
  /** The call of the delegate runner that made it, or of which it is one network. */
  readonly pod?: PodCall;
  /** Its networks are all that it consists of, and each is listed as well: its CHECK would only repeat theirs. */
  readonly isCheckedInParts?: true;
}

/** The call of the delegate runner for a pod, which has a record of its own. */
export interface PodCall {
  readonly id: AttachmentId;
  /** The journal that has its record. */
  readonly podsDir: string;
  /** The list that names the runner, if the runtime's attachment is listed. */
  readonly source: string | undefined;
}

/** @param journals state directories */
export function attachmentLister(
  journals: readonly string[],
  cacheDir: string,
  isDoubted: (file: object) => boolean,
): Lister<WatchedAttachment> {
  const list = knownLister({ cacheDir, journals }, isDoubted);
  return scope => standingOf(list(scope));
}

/** Attachments that were made and not deleted, each once. Our record of one that another runtime has made again since says nothing. */
export function standingOf(known: readonly KnownAttachment[]): WatchedAttachment[] {
  const standing = known.flatMap(({ known, record, stateDir }) => {
    const recorded =
      record && stateDir !== undefined && known.file !== undefined ? { stateDir, record } : undefined;
    if (record && record.phase !== 'attached') return [];
    return recorded && isElsewhere(recorded.record, process.env) ? [] : toWatched(known, recorded);
  });
  return [...new Map(standing.map(one => [one.key, one])).values()];
}

/** What was read of its file. */
export function fileOf({ recorded, known }: WatchedAttachment): object {
  return recorded?.record ?? known;
}

function toWatched(known: CachedAttachment, recorded: WatchedAttachment['recorded']): WatchedAttachment {
  const { network, containerId, ifname } = known;
  const id = { network, containerId, ifname };
  return { id, key: keyOf(id), known, recorded, devices: hostDevicesOf(known.result) };
}

/** Names of the interfaces of a result that are in no sandbox. */
function hostDevicesOf(result: JsonObject | undefined): string[] {
  const { interfaces } = result ?? {};
  if (!Array.isArray(interfaces)) return [];
  return interfaces.flatMap(one => {
    if (!isObject(one) || one.sandbox) return [];
    return typeof one.name === 'string' && one.name !== '' ? [one.name] : [];
  });
}

/** Where its records are and its plugins were found. */
export function runtimeFor({ recorded }: WatchedAttachment, runtime: ChainRuntime): ChainRuntime {
  if (recorded === undefined) return runtime;
  const { stateDir, record } = recorded;
  return { ...withRecordedDirs(runtime, record), stateDir, cacheDir: record.cacheDir };
}
