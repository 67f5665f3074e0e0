// What is known of an attachment, if its files can be used?
import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { readAttachment } from '../../journal/entries.ts';
import type { CachedAttachment } from '../../journal/entry.ts';
import { type AttachmentRecord, type RememberedAdd, toRemembered } from '../../journal/record.ts';
import { readRecord } from '../../journal/store.ts';
import { type ChainRuntime, cacheDirOf } from '../run/runtime.ts';

/** What is known, whichever runtime made it. Unreadable files are ignored: the callers must go on. */
export function findRemembered(id: AttachmentId, runtime: ChainRuntime): RememberedAdd | undefined {
  const record = findRecord(id, runtime);
  return record ? toRemembered(record) : findCached(id, runtime);
}

/** The record, if there is a journal and it can be read. */
export function findRecord(id: AttachmentId, runtime: ChainRuntime): AttachmentRecord | undefined {
  const { stateDir } = runtime;
  if (stateDir === undefined) return undefined;
  return orWarn(runtime, UNUSABLE, () => readRecord(stateDir, id));
}

/**
 * Like readAttachment(), but ignores an unusable file.
 * @param unusable error codes that make it so. A step that must go on includes that it cannot be read.
 */
export function findCached(
  id: AttachmentId,
  runtime: ChainRuntime,
  unusable: readonly number[] = UNUSABLE,
): CachedAttachment | undefined {
  return orWarn(runtime, unusable, () => readAttachment(cacheDirOf(runtime), id));
}

const UNUSABLE: readonly number[] = [ErrorCode.decodingFailure, ErrorCode.ioFailure];

function orWarn<T>({ onWarning }: ChainRuntime, codes: readonly number[], work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof CniError && codes.includes(error.code))) throw error;
    onWarning?.(error);
    return undefined;
  }
}
