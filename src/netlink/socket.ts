// How are requests sent to the kernel, and how do its answers come back?
import { closeSync } from 'node:fs';
import { Errno } from '../sys/errno.ts';
import { faultAt } from '../sys/fault.ts';
import { checked, errno, libc, ptr, SystemError } from '../sys/libc.ts';
import { attrs } from './codec/attrs.ts';
import { str, u32 } from './codec/fields.ts';
import {
  type Envelope,
  eachMessage,
  encodeMessages,
  NLM_F_ACK,
  NLM_F_ACK_TLVS,
  NLM_F_CAPPED,
  NLM_F_DUMP,
  NLM_F_DUMP_INTR,
  NLM_F_MULTI,
  NLM_F_REQUEST,
  NLMSG_DONE,
  NLMSG_ERROR,
  nlmsgerr,
  nlmsghdr,
} from './codec/message.ts';
import { align4 } from './codec/writer.ts';
import { NetlinkError } from './errors.ts';
import { traceMessages } from './trace.ts';

/** linux/netlink.h, protocols */
export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;

/** sys/socket.h */
const AF_NETLINK = 16;
const SOCK_RAW_CLOEXEC = 3 | 0o2000000;
const SOL_SOCKET = 1;
const SO_SNDBUF = 7;
const SO_RCVBUF = 8;
const SO_RCVTIMEO = 20;

/** linux/netlink.h */
const SOL_NETLINK = 270;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

/** The kernel fills a dump message by message up to this size at most. */
const RECEIVE_BYTES = 1 << 18;
/** Longest wait for an answer: deleting devices waits for grace periods, nothing else takes long. */
const ANSWER_DEADLINE_S = 30;
/** A dump is torn when the table changed meanwhile; a busy node does that often, but not forever. */
const DUMP_ATTEMPTS = 20;

/** linux/netlink.h, enum nlmsgerr_attrs */
const ackAttrs = attrs('ack', {
  msg: [1, str],
  offset: [2, u32],
});

/** A request without an envelope. */
export interface Request {
  /** What is asked, in words, for the error: `add address 10.1.0.2/24 to "eth0"`. */
  readonly op: string;
  readonly type: number;
  readonly flags?: number;
  readonly body: Uint8Array;
}

/**
 * One netlink socket. It belongs to the namespace in which it was opened for as long as it lives. All calls are
 * synchronous: the kernel answers in microseconds, and a request never meets another one's answer.
 */
export class NetlinkSocket {
  readonly #protocol: number;
  readonly #fd: number;
  #seq = 0;

  constructor(protocol: number) {
    this.#protocol = protocol;
    this.#fd = checked(libc().socket(AF_NETLINK, SOCK_RAW_CLOEXEC, protocol), () => 'open a netlink socket');
    const address = new Uint8Array(12);
    new DataView(address.buffer).setUint16(0, AF_NETLINK, true);
    checked(libc().bind(this.#fd, ptr(address), address.length), () => 'bind a netlink socket');
    this.#option(SOL_SOCKET, SO_RCVBUF, 1 << 20);
    this.#option(SOL_SOCKET, SO_SNDBUF, 1 << 20);
    this.#option(SOL_NETLINK, NETLINK_EXT_ACK, 1);
    this.#option(SOL_NETLINK, NETLINK_CAP_ACK, 1);
    this.#option(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1);
    const seconds = new BigInt64Array([BigInt(ANSWER_DEADLINE_S), 0n]);
    libc().setsockopt(this.#fd, SOL_SOCKET, SO_RCVTIMEO, ptr(seconds), seconds.byteLength);
  }

  /**
   * Sends one request and waits for its acknowledgement.
   * @returns bodies of the messages that came before it (the object, when `NLM_F_ECHO` or a get asked for one)
   * @throws NetlinkError
   */
  request(request: Request): Uint8Array[] {
    return this.requestAll([request]);
  }

  /**
   * Sends several requests at once; the kernel executes them in order and independently. The first refusal is thrown
   * after all were answered, so nothing stays unread.
   */
  requestAll(requests: readonly Request[]): Uint8Array[] {
    const planned = requests.map(({ op }) => plannedRefusal(op));
    const refusal = planned.find(one => one !== undefined);
    if (refusal === undefined) return this.#exchange(requests);
    // The others are executed all the same, since they are independent.
    const rest = requests.filter((_, i) => planned[i] === undefined);
    try {
      if (rest.length) this.#exchange(rest);
    } catch {
      // One error is reported, and there is one already.
    }
    throw refusal;
  }

  /**
   * Sends the messages as one nf_tables transaction: all take effect or none does. Only the messages between the first
   * and the last (batch begin and end) are acknowledged. Without the last, the kernel checks them and applies nothing.
   * @throws NetlinkError of the first message that the kernel refused
   */
  transaction(begin: Request, requests: readonly Request[], end?: Request): Uint8Array[] {
    failIfPlanned(requests[0] ?? begin);
    const first = this.#envelope(begin, NLM_F_REQUEST);
    const envelopes = requests.map(request => this.#envelope(request, NLM_F_REQUEST | NLM_F_ACK));
    const last = end ? [this.#envelope(end, NLM_F_REQUEST)] : [];
    this.#send([first, ...envelopes, ...last]);
    return this.#collectAnswers(envelopes, requests);
  }

  /**
   * All objects that a get request matches. A dump that the kernel says was torn by a concurrent change is repeated.
   * @throws NetlinkError
   */
  dump(request: Request): Uint8Array[] {
    failIfPlanned(request);
    for (let attempt = 1; ; attempt++) {
      const envelope = this.#envelope(request, NLM_F_REQUEST | NLM_F_DUMP);
      this.#send([envelope]);
      const { bodies, torn } = this.#collectDump(envelope, request);
      if (!torn) return bodies;
      if (attempt === DUMP_ATTEMPTS)
        throw new NetlinkError(request.op, Errno.EINTR, 'the table kept changing');
    }
  }

  close(): void {
    closeSync(this.#fd);
  }

  #exchange(requests: readonly Request[]): Uint8Array[] {
    const envelopes = requests.map(request => this.#envelope(request, NLM_F_REQUEST | NLM_F_ACK));
    this.#send(envelopes);
    return this.#collectAnswers(envelopes, requests);
  }

  #envelope(request: Request, flags: number): Envelope {
    this.#seq += 1;
    return { type: request.type, flags: (request.flags ?? 0) | flags, seq: this.#seq, body: request.body };
  }

  #send(envelopes: readonly Envelope[]): void {
    const buffer = encodeMessages(envelopes);
    traceMessages('send', this.#protocol, envelopes);
    checked(libc().send(this.#fd, ptr(buffer), buffer.length, 0), () => 'send a netlink request');
  }

  #collectAnswers(envelopes: readonly Envelope[], requests: readonly Request[]): Uint8Array[] {
    const pending = new Map(
      envelopes.map((envelope, i) => [envelope.seq, requests[i]?.op ?? 'talk to the kernel']),
    );
    const last = envelopes.at(-1)?.seq;
    const bodies: Uint8Array[] = [];
    let refusal: NetlinkError | undefined;
    while (pending.size) {
      for (const message of this.#receive()) {
        const op = pending.get(message.seq);
        if (op === undefined) {
          // nf_tables reports what stops a whole transaction against the message that opens it.
          const early =
            message.type === NLMSG_ERROR &&
            envelopes[0] !== undefined &&
            message.seq === envelopes[0].seq - 1;
          if (early && nlmsgerr.decode(message.body).error !== 0)
            throw refusalOf(message, requests[0]?.op ?? 'commit');
          continue;
        }
        if (message.type !== NLMSG_ERROR) {
          bodies.push(message.body.slice());
          continue;
        }
        refusal ??= refusalOf(message, op);
        pending.delete(message.seq);
        // A refused transaction may leave later messages unanswered once the last has been.
        if (refusal && message.seq === last) pending.clear();
      }
    }
    if (refusal) throw refusal;
    return bodies;
  }

  #collectDump(envelope: Envelope, request: Request): { bodies: Uint8Array[]; torn: boolean } {
    const bodies: Uint8Array[] = [];
    let torn = false;
    for (;;) {
      for (const message of this.#receive()) {
        if (message.seq !== envelope.seq) continue;
        if (message.flags & NLM_F_DUMP_INTR) torn = true;
        if (message.type === NLMSG_ERROR) {
          const refusal = refusalOf(message, request.op);
          if (refusal?.errno === Errno.EINTR) return { bodies, torn: true };
          if (refusal) throw refusal;
          return { bodies, torn };
        }
        if (message.type === NLMSG_DONE) {
          // A dump that fails half way says so in its last message.
          const problem =
            message.body.length >= 4
              ? -new DataView(message.body.buffer, message.body.byteOffset).getInt32(0, true)
              : 0;
          if (problem === Errno.EINTR) return { bodies, torn: true };
          if (problem > 0) throw new NetlinkError(request.op, problem);
          return { bodies, torn };
        }
        bodies.push(message.body.slice());
        if (!(message.flags & NLM_F_MULTI)) return { bodies, torn };
      }
    }
  }

  #receive(): Envelope[] {
    const received = Number(libc().recv(this.#fd, ptr(receiveBuffer()), RECEIVE_BYTES, 0));
    if (received < 0) {
      const problem = errno();
      if (problem === Errno.EINTR) return [];
      throw new SystemError('receive an answer from the kernel', problem);
    }
    const messages = Array.from(eachMessage(receiveBuffer().subarray(0, received)));
    traceMessages('recv', this.#protocol, messages);
    return messages;
  }

  #option(level: number, option: number, value: number): void {
    const bytes = new Int32Array([value]);
    // Options that an old kernel lacks make errors terser, nothing else: no reason to stop.
    libc().setsockopt(this.#fd, level, option, ptr(bytes), 4);
  }
}

let shared: Uint8Array | undefined;

/** One buffer for all sockets: calls are synchronous, and what outlives them is copied. */
function receiveBuffer(): Uint8Array {
  shared ??= new Uint8Array(RECEIVE_BYTES);
  return shared;
}

function plannedRefusal(op: string): NetlinkError | undefined {
  const fault = faultAt(op);
  return fault === undefined ? undefined : new NetlinkError(op, fault);
}

function failIfPlanned({ op }: Request): void {
  const refusal = plannedRefusal(op);
  if (refusal) throw refusal;
}

/** The refusal in an acknowledgement, or undefined when it says yes. */
function refusalOf(message: Envelope, op: string): NetlinkError | undefined {
  const { error, request } = nlmsgerr.decode(message.body);
  if (error === 0) return undefined;
  let words: string | undefined;
  if (message.flags & NLM_F_ACK_TLVS) {
    const echoed = message.flags & NLM_F_CAPPED ? 0 : align4(request.length - nlmsghdr.size);
    words = ackAttrs.decode(message.body.subarray(nlmsgerr.size + echoed), {}).msg;
  }
  return new NetlinkError(op, -error, words);
}
