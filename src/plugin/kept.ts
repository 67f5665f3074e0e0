// Which attachments does a plugin's GC keep?

import { type AttachmentId, findOwner } from '../cni/attachment.ts';

type Owner = Pick<AttachmentId, 'containerId' | 'ifname'>;

/**
 * The attachments that GC keeps: those that the runtime lists, and those begun after GC. Query it only after listing the
 * candidates for deletion: everything found of an attachment was then made after its note, so the answer is reliable.
 */
export interface KeptAttachments {
  /** When GC began, in milliseconds of the clock of the kernel's file times. */
  readonly since: number;
  /** The container id may come from a note in the kernel, which has a digest instead of a long id. */
  has(owner: Owner): boolean;
  /** Whether a plugin of ours took part in its ADD, and so noted when it began. */
  isNoted(owner: Owner): boolean;
  /** Whether any of them satisfies the test: for resources that do not name their attachment in full. */
  some(test: (owner: AttachmentId) => boolean): boolean;
}

/**
 * Whether a note in the kernel names an attachment of the network that GC does not keep. Call it only for notes that were listed
 * earlier: see {@link KeptAttachments}.
 */
export function isStaleNote(note: string | undefined, network: string, kept: KeptAttachments): boolean {
  const owner = findOwner(note);
  return owner?.network === network && !kept.has(owner);
}
