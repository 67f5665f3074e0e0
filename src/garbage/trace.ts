// What shows that an attachment was made here, and whether it is still in use?
import type { AttachmentId } from '../cni/attachment.ts';

/**
 * `used`: something that exists needs it. `unused`: what needed it is gone. `silent`: it proves neither.
 */
export type Evidence = 'used' | 'unused' | 'silent';

/** One thing in the kernel or on disk that carries the name of an attachment. */
export interface Trace {
  /** As noted: if the note was too long, it has a digest instead of the container id. */
  readonly owner: AttachmentId;
  /** Human-readable: `link "veth12345678"`. */
  readonly what: string;
  readonly evidence: Evidence;
  /** The reason for the evidence, human-readable. */
  readonly why: string;
}

/** A trace before its use is judged. Whatever uses it may be made after the trace was found, so it is judged later. */
export interface FoundTrace extends Pick<Trace, 'owner' | 'what'> {
  judge(witnesses: Witnesses): Pick<Trace, 'evidence' | 'why'>;
}

/** Facts to judge traces by. They are collected after the traces were found. */
export interface Witnesses {
  /** Index of a device of this namespace, to the path of the namespace of its other end. */
  readonly farEnds: ReadonlyMap<number, string>;
  /** The other namespace in which an interface has the address, human-readable. */
  holderOf(address: string): string | undefined;
  /** Whether other devices redirect packets to the one with this index. */
  isLedTo(index: number): boolean;
  /** The attachment that the lease of the address names, if there is one. */
  lesseeOf(address: string): Pick<AttachmentId, 'containerId' | 'ifname'> | undefined;
}
