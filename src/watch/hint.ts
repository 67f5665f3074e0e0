// What does a notification say about attachments?
import type { AttachmentId } from '../cni/attachment.ts';

/** What may have been damaged. */
export type Hint =
  /** An attachment named by an element that was deleted from this table. */
  | { readonly of: 'owner'; readonly owner: AttachmentId; readonly table: string }
  /** Elements of a table of ours that name no attachment, such as counts of what several have. */
  | { readonly of: 'shared'; readonly table: string }
  /** Attachments that have a device on the host, or a route or address there. */
  | { readonly of: 'device'; readonly name: string }
  /** Attachments that have a device on the host whose other end has changed, in a namespace where only containers act. */
  | { readonly of: 'inside'; readonly name: string; readonly end?: OtherEnd }
  /** None yet: a device was made on the host, and its attachment may be listed soon. */
  | { readonly of: 'arrival' }
  /** Every attachment. `isLikely`: what was removed is part of attachments; otherwise it only may be. */
  | { readonly of: 'all'; readonly isLikely: boolean; readonly why: string };

/** How the other end of a device is now. An interface that is as its ADD made it is no damage. */
export interface OtherEnd {
  readonly name: string;
  readonly isUp: boolean;
  readonly mac: string | undefined;
  /** It had another MTU before. */
  readonly hasOtherMtu: boolean;
}
