// Is this still the attachment, in the namespace, that a note is about?

import { findGeneration } from '../../attachments/generation.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { bootId } from '../../files/process-stat.ts';
import { findNetnsCookie } from '../../sys/netns-cookie.ts';
import type { UpkeepNote } from './note.ts';

/** What tells an attachment, and its namespace, from a later one of the same name and path. */
type UpkeepIdentity = Pick<UpkeepNote, 'boot' | 'generation' | 'netnsCookie'>;

/** The identity of an attachment now. @param netns path of its namespace */
export function identityOf(
  environment: Readonly<Record<string, string | undefined>>,
  owner: AttachmentId,
  netns: string,
): UpkeepIdentity {
  const generation = findGeneration(runDir(environment), owner)?.token;
  const netnsCookie = findNetnsCookie(netns);
  return {
    boot: bootId(environment),
    ...(generation ? { generation } : {}),
    ...(netnsCookie ? { netnsCookie } : {}),
  };
}

/** Whether a note is about the attachment that has this identity. A generation may be unknown: the run directory can be lost. */
export function isStillSame(note: UpkeepIdentity, now: UpkeepIdentity): boolean {
  const isUnknown = note.generation === undefined || now.generation === undefined;
  const isSameGeneration = isUnknown || note.generation === now.generation;
  return note.boot === now.boot && isSameGeneration && note.netnsCookie === now.netnsCookie;
}
