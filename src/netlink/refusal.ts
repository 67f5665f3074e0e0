// Did the kernel refuse a request, and with which message?
import { faultAt } from '../sys/fault.ts';
import { attrs } from './codec/attrs.ts';
import { str, u32 } from './codec/fields.ts';
import { type Envelope, NLM_F_ACK_TLVS, NLM_F_CAPPED, nlmsgerr, nlmsghdr } from './codec/message.ts';
import { readS32 } from './codec/reader.ts';
import { align4 } from './codec/writer.ts';
import { NetlinkError } from './errors.ts';

/** linux/netlink.h, enum nlmsgerr_attrs */
const ackAttrs = attrs('ack', {
  msg: [1, str],
  offset: [2, u32],
});

/**
 * A refusal by the kernel. Most are expected answers to questions. Creating an Error costs more than the question, so that is
 * deferred until the refusal is thrown.
 */
export class Refusal {
  readonly #asked: { readonly op: string };
  readonly #words: string | undefined;
  /** The kernel's error number, positive. */
  readonly errno: number;

  constructor(asked: { readonly op: string }, errno: number, words?: string) {
    this.#asked = asked;
    this.#words = words;
    this.errno = errno;
  }

  toError(): NetlinkError {
    return new NetlinkError(this.#asked.op, this.errno, this.#words);
  }
}

/** The refusal in an acknowledgement, or undefined when the request succeeded. */
export function refusalOf(message: Envelope, asked: { readonly op: string }): Refusal | undefined {
  if (message.body.length >= 4 && readS32(message.body, 0) === 0) return undefined;
  const { error, request } = nlmsgerr.decode(message.body);
  let words: string | undefined;
  if (message.flags & NLM_F_ACK_TLVS) {
    const echoed = message.flags & NLM_F_CAPPED ? 0 : align4(request.length - nlmsghdr.size);
    words = ackAttrs.decode(message.body.subarray(nlmsgerr.size + echoed), {}).msg;
  }
  return new Refusal(asked, -error, words);
}

/** The refusal that a test has planned for a request, if any. */
export function plannedRefusal(asked: { readonly op: string }): Refusal | undefined {
  const fault = faultAt(() => asked.op);
  return fault === undefined ? undefined : new Refusal(asked, fault);
}
