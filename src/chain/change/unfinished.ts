// Does a record say that a change has begun and not ended?
import type { AttachmentRecord } from '../../journal/store.ts';

/** Whether a change has begun and not been committed or undone. */
export function isUnfinished({ phase, change }: AttachmentRecord): boolean {
  return phase === 'attached' && change !== undefined;
}

/** Whether the attachment has been changed, or is being changed, since the first record was read. */
export function isChangedSince(
  then: AttachmentRecord | undefined,
  now: AttachmentRecord | undefined,
): boolean {
  if (then === undefined || now === undefined) return false;
  const settings = ({ capabilityArgs, source }: AttachmentRecord) => JSON.stringify([capabilityArgs, source]);
  return isUnfinished(now) || settings(then) !== settings(now);
}
