// What shows that an attachment was made here, and whether anybody is behind it?
import type { Attachment } from '../cni/attachment.ts';

/**
 * `used`: something that exists needs it. `unused`: whatever needed it is gone. `silent`: it does not tell.
 */
export type Evidence = 'used' | 'unused' | 'silent';

/** One thing in the kernel or on disk that carries the name of an attachment. */
export interface Trace {
  /** As the note has it: where it was too long, a digest stands for the container id. */
  readonly owner: Attachment;
  /** In words: `link "veth12345678"`. */
  readonly what: string;
  readonly evidence: Evidence;
  /** What speaks for that, in words. */
  readonly why: string;
}

/** A trace before anybody has looked who is behind it. What was made after it was found must not make it look forsaken. */
export interface FoundTrace extends Pick<Trace, 'owner' | 'what'> {
  judge(witnesses: Witnesses): Pick<Trace, 'evidence' | 'why'>;
}

/** Who holds what, to judge traces by: looked for after the traces were found. */
export interface Witnesses {
  /** Index of a device of this namespace to the path of the namespace that its other end is in. */
  readonly farEnds: ReadonlyMap<number, string>;
  /** In which other namespace an interface has the address, in words. */
  holderOf(address: string): string | undefined;
  /** Whether other devices lead packets to the one with this index. */
  isLedTo(index: number): boolean;
  /** Whom the lease of the address names, where there is one. */
  lesseeOf(address: string): Pick<Attachment, 'containerId' | 'ifname'> | undefined;
}
