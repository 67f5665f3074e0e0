// What does a node hold of an attachment, whichever runtime recorded it?
import type { AttachmentId } from '../../cni/attachment.ts';
import type { JsonObject } from '../../cni/json.ts';
import type { NetworkPlugins } from '../../cni/plugin-about.ts';

/** An attachment that has resources on the node. */
export interface HeldAttachment {
  /** `~` and a digest if the whole id cannot be found. */
  readonly containerId: string;
  readonly ifname: string;
  /** False if only a digest of the container's id is known: DEL cannot be called for it. */
  readonly isNamed: boolean;
  /** Its resources, human-readable. */
  readonly traces: readonly string[];
  /** Why it must be kept unless the caller says otherwise; undefined if it is not in use. */
  readonly inUse: string | undefined;
}

/** An attachment, where it was made, and what its ADD said of it. */
export interface Made extends AttachmentId {
  readonly netns: string;
  /** Result of the last plugin, in the version that it names. */
  readonly result?: JsonObject | undefined;
}

/** Asks the node itself about one attachment, whatever the records say. */
export interface NodeWitness {
  /**
   * What was made of the attachment in this boot, human-readable: a pair under its name whose other end is in a namespace in
   * use, or a lease. Undefined if there is neither.
   * @param list says where its plugins keep leases
   * @throws CniError, NetlinkError when the node cannot be queried
   */
  findLife(list: NetworkPlugins, id: AttachmentId): Promise<string | undefined>;
  /**
   * Whether the namespace of an attachment has its interface, not one of the same name that belongs to another attachment.
   * @throws Error when that cannot be determined
   */
  hasInterface(attachment: Made): boolean;
}

/**
 * Whether the namespace of an attachment has that very interface. Without a witness to ask the node, it counts as there.
 * @throws Error when that cannot be determined
 */
export async function hasItsInterface(
  attachment: Made,
  { openWitness }: { readonly openWitness?: (() => Promise<NodeWitness>) | undefined },
): Promise<boolean> {
  return (await openWitness?.())?.hasInterface(attachment) ?? true;
}
