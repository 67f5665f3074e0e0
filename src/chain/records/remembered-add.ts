// What is known of an attachment, from its record or from libcni's cache?

import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { readAttachment } from '../../journal/entries.ts';
import { type CachedAttachment, renderAttachment } from '../../journal/entry.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { readRecord } from '../../journal/store.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';

/** An attachment as its ADD made it. */
export interface RememberedAdd extends CachedAttachment {
  /** The record that it was read from; undefined if only the cache has it. */
  readonly file?: string;
}

/** What is known, from the record or cached result that can be used. Unreadable ones are ignored: the callers must go on. */
export function findRemembered(id: AttachmentId, runtime: ChainRuntime): RememberedAdd | undefined {
  return chooseRemembered(findRecord(id, runtime), findCached(id, runtime));
}

/**
 * Chooses between record and cached result. The record holds more, and may exist without the cache. But for an existing
 * attachment both hold the same; if they differ, another runtime has made the attachment again since.
 */
export function chooseRemembered(
  record: AttachmentRecord | undefined,
  cached: CachedAttachment | undefined,
): RememberedAdd | undefined {
  if (record === undefined) return cached;
  const known = toRemembered(record);
  if (!cached || !record.added || record.phase === 'failed') return known;
  return isOwnCache(cached, record) ? known : cached;
}

/** Whether the cached result is that of the record: each ADD and each change writes both with the same content, the record first. */
export function isOwnCache(cached: CachedAttachment, record: AttachmentRecord): boolean {
  const last = compared.get(record);
  if (last?.cached === cached) return last.isOwn;
  const known = toRemembered(record);
  const text = renderAttachment(cached);
  const { capabilityArgs, source, result } = record.before ?? known;
  const isOwn = [known, { ...known, capabilityArgs, source, result }].some(
    one => text === renderAttachment(one),
  );
  compared.set(record, { cached, isOwn });
  return isOwn;
}

/** The watch compares the same two again and again. */
const compared = new WeakMap<
  AttachmentRecord,
  { readonly cached: CachedAttachment; readonly isOwn: boolean }
>();

/** A record converted to the cache's format. */
export function toRemembered(record: AttachmentRecord): RememberedAdd {
  const { network, containerId, ifname, netns, args, capabilityArgs, source, result, file } = record;
  return { network, containerId, ifname, netns, args, capabilityArgs, source, result, file };
}

/** The record, if there is a journal and it can be read. */
export function findRecord(id: AttachmentId, runtime: ChainRuntime): AttachmentRecord | undefined {
  const { stateDir } = runtime;
  if (stateDir === undefined) return undefined;
  return orWarn(runtime, [ErrorCode.decodingFailure, ErrorCode.ioFailure], () => readRecord(stateDir, id));
}

/**
 * Like readAttachment(), but ignores an unusable file.
 * @param unusable error codes that make it so. A step that must go on includes that it cannot be read.
 */
export function findCached(
  id: AttachmentId,
  runtime: ChainRuntime,
  unusable: readonly number[] = [ErrorCode.decodingFailure, ErrorCode.ioFailure],
): CachedAttachment | undefined {
  return orWarn(runtime, unusable, () => readAttachment(cacheDirOf(runtime), id));
}

function orWarn<T>({ onWarning }: ChainRuntime, codes: readonly number[], work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof CniError && codes.includes(error.code))) throw error;
    onWarning?.(error);
    return undefined;
  }
}
