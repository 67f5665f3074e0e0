// Which attachment owns what a call creates?
import type { AttachmentId } from '../cni/attachment.ts';
import type { Call } from '../plugin/define.ts';

/** What names the attachment in a call. */
export interface AttachmentCall {
  readonly network: string;
  readonly env: Pick<Call['env'], 'containerId' | 'ifname'>;
}

/** The attachment that the call is for. */
export function attachmentOf(call: AttachmentCall): AttachmentId {
  return { network: call.network, containerId: call.env.containerId, ifname: call.env.ifname };
}
