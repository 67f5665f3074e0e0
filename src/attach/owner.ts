// Whose is what a call makes, and whose must stay?
import type { Attachment } from '../cni/attachment.ts';
import type { Call } from '../plugin/define.ts';

/** Who the call is for. */
export function attachmentOf(call: Call): Attachment {
  return { network: call.network, containerId: call.env.containerId, ifname: call.env.ifname };
}

/** The attachments of this network that GC must keep; undefined when the runtime sent no list. */
export function validAttachmentsOf({ network, validAttachments }: Call): Attachment[] | undefined {
  return validAttachments?.map(one => ({ network, containerId: one.containerID, ifname: one.ifname }));
}
