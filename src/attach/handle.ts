// How does the packet filter identify an attachment?
import { type AttachmentId, renderOwner } from '../cni/attachment.ts';
import { COMMENT_MAX_LENGTH } from '../netlink/nft/table.ts';
import type { Call } from '../plugin/define.ts';

/** A short handle for keys of sets, and a human-readable note for comments. */
export interface FilterOwner {
  readonly handle: string;
  readonly note: string;
}

/** The handle and note of an attachment. */
export function filterOwnerOf(attachment: AttachmentId): FilterOwner {
  return filterOwnerOfNote(noteOf(attachment));
}

/** The comment of an attachment's elements and rules. */
export function noteOf(attachment: AttachmentId): string {
  return renderOwner(attachment, COMMENT_MAX_LENGTH);
}

/** The owner that a comment names. */
export function filterOwnerOfNote(note: string): FilterOwner {
  return { note, handle: handleOf(note) };
}

/** 64-bit FNV-1a, cut to the fifteen characters of an interface name, the only text type that nft has. */
function handleOf(note: string): string {
  const mask = (1n << 64n) - 1n;
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(note)) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & mask;
  return hash.toString(16).padStart(16, '0').slice(-15);
}

/** What names the attachment in a call. */
interface AttachmentCall {
  readonly network: string;
  readonly env: Pick<Call['env'], 'containerId' | 'ifname'>;
}

/** The attachment that the call is for. */
export function attachmentOf(call: AttachmentCall): AttachmentId {
  return { network: call.network, containerId: call.env.containerId, ifname: call.env.ifname };
}
