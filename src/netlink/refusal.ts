// Did the kernel refuse, and in which words?
import { faultAt } from '../sys/fault.ts';
import { attrs } from './codec/attrs.ts';
import { str, u32 } from './codec/fields.ts';
import { type Envelope, NLM_F_ACK_TLVS, NLM_F_CAPPED, nlmsgerr, nlmsghdr } from './codec/message.ts';
import { align4 } from './codec/writer.ts';
import { NetlinkError } from './errors.ts';

/** linux/netlink.h, enum nlmsgerr_attrs */
const ackAttrs = attrs('ack', {
  msg: [1, str],
  offset: [2, u32],
});

/** The refusal in an acknowledgement, or undefined when it says yes. */
export function refusalOf(message: Envelope, op: string): NetlinkError | undefined {
  const { error, request } = nlmsgerr.decode(message.body);
  if (error === 0) return undefined;
  let words: string | undefined;
  if (message.flags & NLM_F_ACK_TLVS) {
    const echoed = message.flags & NLM_F_CAPPED ? 0 : align4(request.length - nlmsghdr.size);
    words = ackAttrs.decode(message.body.subarray(nlmsgerr.size + echoed), {}).msg;
  }
  return new NetlinkError(op, -error, words);
}

/** The refusal that a test has planned for a request, if any. */
export function plannedRefusal(op: string): NetlinkError | undefined {
  const fault = faultAt(op);
  return fault === undefined ? undefined : new NetlinkError(op, fault);
}
