// Has the runtime that made an attachment begun to delete it, and has it finished?
//
// Only libcni's cache names such an attachment, and its runtime knows no locks: its DEL may run at any moment. The first plugin of a DEL
// removes the note of the ADD (attachments/generation.ts), and the runtime removes its cached result after the last one.

import { findGeneration } from '../../attachments/generation.ts';
import { findNetnsIdentity } from '../../attachments/netns-identity.ts';
import { type CachedAttachment, renderAttachment } from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import type { ChainRuntime } from '../run/runtime.ts';
import { findCached } from './known-add.ts';

/** Why such an attachment is passed over: human-readable. */
export const JUST_DELETED = 'its runtime has just deleted it';

/** Which ADD made the attachment; undefined if no note tells, as after an ADD by plugins that write none. */
export function noteOf(id: AttachmentId, { env }: Pick<ChainRuntime, 'env'>): string | undefined {
  return findGeneration(runDir(env), id)?.token;
}

/** Whether a DEL has begun, or another ADD, since the note was read. Without a note this is unknown: false. */
export function isNoteGone(
  id: AttachmentId,
  note: string | undefined,
  runtime: Pick<ChainRuntime, 'env'>,
): boolean {
  return note !== undefined && noteOf(id, runtime) !== note;
}

/** Where no note is removed when a DEL begins: longer than one takes. */
export const DEL_WITHOUT_NOTE_MS = 5_000;

/** Whether the cached result is still that of the same ADD, and its namespace exists. */
export function isThere(cached: CachedAttachment, runtime: ChainRuntime): boolean {
  if (findNetnsIdentity(cached.netns) === undefined) return false;
  const now = findCached(cached, quiet(runtime));
  return now !== undefined && renderAttachment(now) === renderAttachment(cached);
}

function quiet({ onWarning: _, ...runtime }: ChainRuntime): ChainRuntime {
  return runtime;
}
