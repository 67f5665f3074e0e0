// How are requests sent to the kernel, and how do its answers come back?
import { closeSync } from 'node:fs';
import { closeLater } from '../sys/close-later.ts';
import { Errno } from '../sys/errno.ts';
import { checked, errno, libc, ptr, SystemError } from '../sys/libc.ts';
import {
  type Envelope,
  eachMessage,
  encodeMessages,
  NLM_F_ACK,
  NLM_F_DUMP,
  NLM_F_DUMP_INTR,
  NLM_F_MULTI,
  NLM_F_REQUEST,
  NLMSG_DONE,
  NLMSG_ERROR,
  nlmsgerr,
} from './codec/message.ts';
import { NetlinkError } from './errors.ts';
import { exchange } from './exchanges.ts';
import { openNetlink } from './open.ts';
import { plannedRefusal, refusalOf } from './refusal.ts';
import { traceMessages } from './trace.ts';

/** linux/netlink.h, protocols */
export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;

/** sys/socket.h */
const MSG_DONTWAIT = 0x40;

/** The kernel fills a dump message by message up to this size at most. */
const RECEIVE_BYTES = 1 << 18;
/** A dump is torn when the table changed meanwhile; a busy node does that often, but not forever. */
const DUMP_ATTEMPTS = 20;

/** More messages than any dump comes in. */
const MAX_UNREAD = 100_000;

/** Acknowledgements wait in the receive buffer until all requests were executed: it must hold them. */
const MAX_AT_ONCE = 100;

/** linux/netfilter/nf_tables.h, NFT_MSG_DELTABLE, _DELCHAIN, _DELRULE, _DELSET, _DELSETELEM: transactions are of nf_tables. */
const NFT_DELETIONS = [2, 5, 8, 11, 14];

/** A request without an envelope. */
export interface Request {
  /** What is asked, in words, for the error: `add address 10.1.0.2/24 to "eth0"`. */
  readonly op: string;
  readonly type: number;
  readonly flags?: number;
  readonly body: Uint8Array;
}

/** What became of one of several requests: the bodies that came before its acknowledgement, or the refusal. */
export type Outcome = readonly Uint8Array[] | NetlinkError;

/**
 * One netlink socket. It belongs to the namespace in which it was opened for as long as it lives. All calls are
 * synchronous: the kernel answers in microseconds, and a request never meets another one's answer.
 */
export class NetlinkSocket {
  readonly #protocol: number;
  readonly #fd: number;
  #seq = 0;
  #hasDeleted = false;

  constructor(protocol: number) {
    this.#protocol = protocol;
    this.#fd = openNetlink(protocol);
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
    const outcomes = this.attemptAll(requests);
    for (const outcome of outcomes) if (outcome instanceof NetlinkError) throw outcome;
    return (outcomes as Uint8Array[][]).flat();
  }

  /**
   * Like {@link requestAll}, but a refusal is an outcome like others: for questions of which some have no answer, and
   * removals of what may be gone.
   * @returns outcomes in the order of the requests
   */
  attemptAll(requests: readonly Request[]): Outcome[] {
    const outcomes: (Outcome | undefined)[] = requests.map(({ op }) => plannedRefusal(op));
    // What was planned to be refused is not sent; the others are executed all the same, since they are independent.
    const sent = requests.map((_, i) => i).filter(i => outcomes[i] === undefined);
    for (let at = 0; at < sent.length; at += MAX_AT_ONCE) {
      const indexes = sent.slice(at, at + MAX_AT_ONCE);
      const answers = this.#exchange(indexes.flatMap(i => requests[i] ?? []));
      for (const [n, i] of indexes.entries()) outcomes[i] = answers[n];
    }
    return outcomes.map(outcome => outcome ?? []);
  }

  /**
   * Sends the messages as one nf_tables transaction: all take effect or none does. Only the messages between the first
   * and the last (batch begin and end) are acknowledged. Without the last, the kernel checks them and applies nothing.
   * @throws NetlinkError of the first message that the kernel refused
   */
  transaction(begin: Request, requests: readonly Request[], end?: Request): Uint8Array[] {
    this.#failIfPlanned(requests[0] ?? begin);
    const first = this.#envelope(begin, NLM_F_REQUEST);
    const envelopes = requests.map(request => this.#envelope(request, NLM_F_REQUEST | NLM_F_ACK));
    const last = end ? [this.#envelope(end, NLM_F_REQUEST)] : [];
    this.#hasDeleted ||= end !== undefined && requests.some(({ type }) => deletesInNft(type));
    return exchange(this.#protocol, requests, () => {
      this.#send([first, ...envelopes, ...last]);
      const { outcomes, refusal } = this.#collectAnswers(envelopes, requests, first.seq);
      if (refusal) throw refusal;
      return (outcomes as Uint8Array[][]).flat();
    });
  }

  /**
   * All objects that a get request matches. A dump that the kernel says was torn by a concurrent change is repeated.
   * @throws NetlinkError
   */
  dump(request: Request): Uint8Array[] {
    this.#failIfPlanned(request);
    return exchange(this.#protocol, [request], () => this.#dumpWhole(request));
  }

  close(): void {
    if (this.#hasDeleted) closeLater(this.#fd);
    else closeSync(this.#fd);
  }

  #dumpWhole(request: Request): Uint8Array[] {
    for (let attempt = 1; ; attempt++) {
      const envelope = this.#envelope(request, NLM_F_REQUEST | NLM_F_DUMP);
      this.#send([envelope]);
      const { bodies, torn } = this.#collectDump(envelope, request);
      if (!torn) return bodies;
      if (attempt === DUMP_ATTEMPTS)
        throw new NetlinkError(request.op, Errno.EINTR, 'the table kept changing');
    }
  }

  #failIfPlanned({ op }: Request): void {
    const refusal = plannedRefusal(op);
    if (refusal) throw refusal;
  }

  #exchange(requests: readonly Request[]): Outcome[] {
    const envelopes = requests.map(request => this.#envelope(request, NLM_F_REQUEST | NLM_F_ACK));
    return exchange(this.#protocol, requests, refuse => {
      this.#send(envelopes);
      const { outcomes, refusal } = this.#collectAnswers(envelopes, requests);
      if (refusal) refuse(refusal);
      return outcomes;
    });
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

  /**
   * Outcomes in the order of the requests, and the refusal that came first.
   * @param opening number of the message that opens a transaction; other answers may be to a request that was given up
   */
  #collectAnswers(
    envelopes: readonly Envelope[],
    requests: readonly Request[],
    opening?: number,
  ): { outcomes: Outcome[]; refusal: NetlinkError | undefined } {
    const bodies: Uint8Array[][] = requests.map(() => []);
    const outcomes: Outcome[] = [...bodies];
    const pending = new Map(envelopes.map(({ seq }, i) => [seq, i]));
    const last = envelopes.at(-1)?.seq;
    let refusal: NetlinkError | undefined;
    while (pending.size) {
      for (const message of this.#receive()) {
        const i = pending.get(message.seq);
        if (i === undefined) {
          // nf_tables reports what stops a whole transaction against the message that opens it.
          const early = message.type === NLMSG_ERROR && message.seq === opening;
          if (early && nlmsgerr.decode(message.body).error !== 0)
            throw refusalOf(message, requests[0]?.op ?? 'commit');
          continue;
        }
        if (message.type !== NLMSG_ERROR) {
          bodies[i]?.push(message.body.slice());
          continue;
        }
        const no = refusalOf(message, requests[i]?.op ?? 'talk to the kernel');
        if (no) outcomes[i] = no;
        refusal ??= no;
        pending.delete(message.seq);
        // A refused transaction may leave later messages unanswered once the last has been.
        if (refusal && message.seq === last) pending.clear();
      }
    }
    return { outcomes, refusal };
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
      this.#drain();
      throw new SystemError('receive an answer from the kernel', problem);
    }
    const messages = Array.from(eachMessage(receiveBuffer().subarray(0, received)));
    traceMessages('recv', this.#protocol, messages);
    return messages;
  }

  /** Nobody waits for the rest of an answer any more; a dump that nobody reads to its end keeps the kernel from another. */
  #drain(): void {
    for (let left = MAX_UNREAD; left > 0; left--) {
      const received = Number(libc().recv(this.#fd, ptr(receiveBuffer()), RECEIVE_BYTES, MSG_DONTWAIT));
      if (received < 0 && errno() === Errno.EAGAIN) return;
    }
  }
}

/** What nf_tables deletes it clears away after a grace period, for which the last close of a socket waits. */
function deletesInNft(type: number): boolean {
  return NFT_DELETIONS.includes(type & 0xff);
}

let shared: Uint8Array | undefined;

/** One buffer for all sockets: calls are synchronous, and what outlives them is copied. */
function receiveBuffer(): Uint8Array {
  shared ??= new Uint8Array(RECEIVE_BYTES);
  return shared;
}
