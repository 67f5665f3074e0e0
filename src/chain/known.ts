// What is known of an attachment: from its record, else from libcni's cache?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { readRecord } from '../journal/store.ts';
import { type AttachmentId, type CachedAttachment, renderAttachment } from './cache-record.ts';
import { readAttachment } from './result-cache.ts';
import { cacheDirOf, type Runtime } from './runtime.ts';

/** An attachment as its ADD left it. */
export interface Known extends CachedAttachment {
  /** The record that says so; undefined when only the cache does. */
  readonly file?: string;
}

/** What is known, from whichever can be used: the steps that call this must go on. */
export function findKnown(id: AttachmentId, runtime: Runtime): Known | undefined {
  return chooseKnown(findRecord(id, runtime), findCached(id, runtime));
}

/**
 * The record knows more, and it is there when the cache is not. But what it says of a standing attachment is in the
 * cache as well: where the two differ, somebody else has made the attachment anew since.
 */
export function chooseKnown(
  record: AttachmentRecord | undefined,
  cached: CachedAttachment | undefined,
): Known | undefined {
  if (record === undefined) return cached;
  const known = toKnown(record);
  if (!cached || !record.added || record.phase === 'failed') return known;
  return renderAttachment(cached) === renderAttachment(known) ? known : cached;
}

/** A record in the terms of the cache. */
export function toKnown(record: AttachmentRecord): Known {
  const { network, containerId, ifname, netns, args, capabilityArgs, source, result, file } = record;
  return { network, containerId, ifname, netns, args, capabilityArgs, source, result, file };
}

/** The record, when there is a journal and it can be read. */
export function findRecord(id: AttachmentId, runtime: Runtime): AttachmentRecord | undefined {
  const { stateDir } = runtime;
  if (stateDir === undefined) return undefined;
  return orWarn(runtime, [ErrorCode.decodingFailure, ErrorCode.ioFailure], () => readRecord(stateDir, id));
}

/**
 * Like readAttachment(), but a file that cannot be used is none.
 * @param unusable codes of what makes it so: for steps that must go on, also that it cannot be read
 */
export function findCached(
  id: AttachmentId,
  runtime: Runtime,
  unusable: readonly number[] = [ErrorCode.decodingFailure, ErrorCode.ioFailure],
): CachedAttachment | undefined {
  return orWarn(runtime, unusable, () => readAttachment(cacheDirOf(runtime), id));
}

function orWarn<T>({ onWarning }: Runtime, codes: readonly number[], work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof CniError && codes.includes(error.code))) throw error;
    onWarning?.(error);
    return undefined;
  }
}
