// Which attachments does this host have, whichever runtime made them, and which host devices lead to them?

import { type KnownAttachment, knownLister, type Lister, pastOf } from '../attachments/store.ts';
import { withRecordedDirs } from '../chain/records/delete-attachment.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { type AttachmentId, keyOf } from '../cni/attachment.ts';
import { isObject, type JsonObject } from '../cni/json.ts';

/** An attachment that was made and not deleted, as far as the files say. */
export interface WatchedAttachment extends KnownAttachment {
  readonly id: AttachmentId;
  readonly key: string;
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
  const standing = known.filter(({ record }) => {
    const past = record && pastOf(record, process.env);
    return !past || (past.stands && past.kind !== 'elsewhere');
  });
  return [...new Map(standing.map(toWatched).map(one => [one.key, one])).values()];
}

/** What was read of its file. */
export function fileOf({ record, known }: WatchedAttachment): object {
  return record ?? known;
}

function toWatched(one: KnownAttachment): WatchedAttachment {
  const { network, containerId, ifname, result } = one.known;
  const id = { network, containerId, ifname };
  return { ...one, id, key: keyOf(id), devices: hostDevicesOf(result) };
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
export function runtimeFor(
  { record, stateDir, cacheDir }: WatchedAttachment,
  runtime: ChainRuntime,
): ChainRuntime {
  return record ? { ...withRecordedDirs(runtime, record), stateDir, cacheDir } : runtime;
}
