// Which attachment owns what a call creates?
import type { AttachmentId } from '../cni/attachment.ts';
import type { Call } from '../plugin/define.ts';

/** The attachment that the call is for. */
export function attachmentOf(call: Call): AttachmentId {
  return { network: call.network, containerId: call.env.containerId, ifname: call.env.ifname };
}
