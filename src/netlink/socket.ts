// How are requests sent to the kernel, and how are its answers received?
import { closeSync } from 'node:fs';
import { closeLater } from '../sys/close-later.ts';
import { Errno } from '../sys/errno.ts';
import {
  type Envelope,
  encodeMessages,
  NLM_F_ACK,
  NLM_F_DUMP,
  NLM_F_DUMP_INTR,
  NLM_F_MULTI,
  NLM_F_REQUEST,
  NLMSG_DONE,
  NLMSG_ERROR,
} from './codec/message.ts';
import { readS32 } from './codec/reader.ts';
import { NetlinkError } from './errors.ts';
import { exchange } from './exchanges.ts';
import { openNetlink } from './open.ts';
import { receiveMessages } from './receive.ts';
import { plannedRefusal, Refusal, refusalOf } from './refusal.ts';
import { sendWhole } from './send.ts';
import { traceMessages } from './trace.ts';

/** linux/netlink.h, protocols */
export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;

/** A dump is interrupted when the table changes during it, which on a busy node happens often, but not forever. */
const DUMP_ATTEMPTS = 20;

/** Acknowledgements stay in the receive buffer until all requests have been executed, so it must have room for them. */
const MAX_AT_ONCE = 100;

/** linux/netfilter/nf_tables.h, NFT_MSG_DELTABLE, _DELCHAIN, _DELRULE, _DELSET, _DELSETELEM: transactions are of nf_tables. */
const NFT_DELETIONS = [2, 5, 8, 11, 14];

/** A request without its envelope. */
export interface Request {
  /** The operation, human-readable, for the error: `add address 10.1.0.2/24 to "eth0"`. */
  readonly op: string;
  readonly type: number;
  readonly flags?: number;
  readonly body: Uint8Array;
  /** A question. The kernel always answers it with one message or a refusal, so no acknowledgement is requested. */
  readonly isQuestion?: boolean;
  /** Refusals that mean that the object does not exist. */
  readonly absent?: readonly number[];
}

/** For refusals of a transaction that contains no change. */
const COMMIT = { op: 'commit' };

type Answer = readonly Uint8Array[] | Refusal;

/** The outcome of one of several requests: the bodies received before its acknowledgement, or the refusal. */
export type Outcome = readonly Uint8Array[] | NetlinkError;

/**
 * One netlink socket. It belongs to the namespace in which it was opened for its whole life. All calls are synchronous: the
 * kernel answers in microseconds, and a request never receives another one's answer.
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
   * @returns bodies of the messages before it (the object, if `NLM_F_ECHO` or a get asked for one)
   * @throws NetlinkError
   */
  request(request: Request): Uint8Array[] {
    return this.requestAll([request]);
  }

  /**
   * Sends several requests at once; the kernel executes them in order and independently. The first refusal is thrown after all
   * have been answered, so nothing is left unread.
   */
  requestAll(requests: readonly Request[]): Uint8Array[] {
    const outcomes = this.#tryAll(requests);
    for (const outcome of outcomes) if (outcome instanceof Refusal) throw outcome.toError();
    return (outcomes as Uint8Array[][]).flat();
  }

  /**
   * Like {@link requestAll}, but returns refusals as outcomes: for deletions of what may no longer exist.
   * @returns outcomes in the order of the requests
   */
  attemptAll(requests: readonly Request[]): Outcome[] {
    return this.#tryAll(requests).map(one => (one instanceof Refusal ? one.toError() : one));
  }

  /**
   * Asks for one object.
   * @param absent refusals that mean that it does not exist, the usual answer
   * @returns body of the answer
   * @throws NetlinkError of any other refusal
   */
  find(question: Request, absent: readonly number[]): Uint8Array | undefined {
    return this.findAll([question], absent)[0];
  }

  /** Like {@link find} for several questions at once, in their order; each may name `absent` refusals of its own. */
  findAll(questions: readonly Request[], absent: readonly number[] = []): (Uint8Array | undefined)[] {
    return this.#tryAll(questions).map((outcome, i) => {
      if (!(outcome instanceof Refusal)) return outcome[0];
      if ((questions[i]?.absent ?? absent).includes(outcome.errno)) return undefined;
      throw outcome.toError();
    });
  }

  /**
   * Sends the messages as one nf_tables transaction: all take effect or none does. Batch begin and end are not acknowledged.
   * Without the end, the kernel checks the messages and applies nothing.
   * @throws NetlinkError of the first message that the kernel refused
   */
  transaction(begin: Request, requests: readonly Request[], end?: Request): Uint8Array[] {
    this.#failIfPlanned(requests[0] ?? begin);
    const first = this.#envelope(begin, NLM_F_REQUEST);
    const envelopes = this.#envelopes(requests);
    const last = end ? [this.#envelope(end, NLM_F_REQUEST)] : [];
    this.#hasDeleted ||= end !== undefined && requests.some(({ type }) => deletesInNft(type));
    return exchange(this.#protocol, requests, () => {
      this.#send([first, ...envelopes, ...last]);
      const { outcomes, refusal } = this.#collectAnswers(envelopes, requests, first.seq);
      if (refusal) throw refusal.toError();
      return (outcomes as Uint8Array[][]).flat();
    });
  }

  /**
   * All objects that match a get request. Repeats a dump that the kernel reports as interrupted by a concurrent change.
   * @param only skips objects that contain none of these byte strings
   * @throws NetlinkError
   */
  dump(request: Request, only?: readonly Uint8Array[]): Uint8Array[] {
    this.#failIfPlanned(request);
    return exchange(this.#protocol, [request], () => this.#dumpWhole(request, only));
  }

  close(): void {
    if (this.#hasDeleted) closeLater(this.#fd);
    else closeSync(this.#fd);
  }

  #dumpWhole(request: Request, only: readonly Uint8Array[] | undefined): Uint8Array[] {
    for (let attempt = 1; ; attempt++) {
      const envelope = this.#envelope(request, NLM_F_REQUEST | NLM_F_DUMP);
      this.#send([envelope]);
      const { bodies, torn } = this.#collectDump(envelope, request, only);
      if (!torn) return bodies;
      if (attempt === DUMP_ATTEMPTS)
        throw new NetlinkError(request.op, Errno.EINTR, 'the table kept changing');
    }
  }

  #failIfPlanned(request: Request): void {
    const refusal = plannedRefusal(request);
    if (refusal) throw refusal.toError();
  }

  #tryAll(requests: readonly Request[]): Answer[] {
    const outcomes: (Answer | undefined)[] = requests.map(plannedRefusal);
    // A request with a planned refusal is not sent; the others are still executed, because they are independent.
    const sent = requests.map((_, i) => i).filter(i => outcomes[i] === undefined);
    for (let at = 0; at < sent.length; at += MAX_AT_ONCE) {
      const indexes = sent.slice(at, at + MAX_AT_ONCE);
      const answers = this.#exchange(indexes.flatMap(i => requests[i] ?? []));
      for (const [n, i] of indexes.entries()) outcomes[i] = answers[n];
    }
    return outcomes.map(outcome => outcome ?? []);
  }

  #exchange(requests: readonly Request[]): Answer[] {
    const envelopes = this.#envelopes(requests);
    return exchange(this.#protocol, requests, refuse => {
      this.#send(envelopes);
      const { outcomes, refusal } = this.#collectAnswers(envelopes, requests);
      if (refusal) refuse(refusal.errno);
      return outcomes;
    });
  }

  /**
   * Requests only the last acknowledgement, since each one would have to be received separately. The kernel executes requests in
   * order and always reports refusals, so success of the last one means that all have been executed.
   */
  #envelopes(requests: readonly Request[]): Envelope[] {
    const last = requests.length - 1;
    return requests.map((request, i) => {
      const isAcknowledged = i === last && !request.isQuestion;
      return this.#envelope(request, isAcknowledged ? NLM_F_REQUEST | NLM_F_ACK : NLM_F_REQUEST);
    });
  }

  #envelope(request: Request, flags: number): Envelope {
    this.#seq += 1;
    return { type: request.type, flags: (request.flags ?? 0) | flags, seq: this.#seq, body: request.body };
  }

  #send(envelopes: readonly Envelope[]): void {
    const buffer = encodeMessages(envelopes);
    traceMessages('send', this.#protocol, envelopes);
    sendWhole(this.#fd, buffer);
  }

  /**
   * Outcomes in the order of the requests, and the first refusal.
   * @param opening sequence number of the message that opens a transaction; other unknown answers belong to abandoned requests
   */
  #collectAnswers(
    envelopes: readonly Envelope[],
    requests: readonly Request[],
    opening?: number,
  ): { outcomes: Answer[]; refusal: Refusal | undefined } {
    const bodies: Uint8Array[][] = requests.map(() => []);
    const outcomes: Answer[] = [...bodies];
    const first = envelopes[0]?.seq ?? 0;
    const last = requests.length - 1;
    let refusal: Refusal | undefined;
    for (let isOver = last < 0; !isOver; ) {
      for (const message of receiveMessages(this.#fd, this.#protocol)) {
        const i = message.seq - first;
        const request = requests[i];
        if (request === undefined) {
          // nf_tables reports a failure of the whole transaction as an error of the message that opens it.
          const stopped =
            message.type === NLMSG_ERROR &&
            message.seq === opening &&
            refusalOf(message, requests[0] ?? COMMIT);
          if (stopped) throw stopped.toError();
          continue;
        }
        if (message.type === NLMSG_ERROR) {
          const no = refusalOf(message, request);
          if (no) outcomes[i] = no;
          refusal ??= no;
          isOver ||= i === last;
        } else {
          bodies[i]?.push(message.body);
          isOver ||= i === last && request.isQuestion === true;
        }
      }
    }
    return { outcomes, refusal };
  }

  #collectDump(
    envelope: Envelope,
    request: Request,
    only: readonly Uint8Array[] | undefined,
  ): { bodies: Uint8Array[]; torn: boolean } {
    const bodies: Uint8Array[] = [];
    let torn = false;
    for (;;) {
      for (const message of receiveMessages(this.#fd, this.#protocol, only)) {
        if (message.seq !== envelope.seq) continue;
        if (message.flags & NLM_F_DUMP_INTR) torn = true;
        if (message.type === NLMSG_ERROR) {
          const refusal = refusalOf(message, request);
          if (refusal?.errno === Errno.EINTR) return { bodies, torn: true };
          if (refusal) throw refusal.toError();
          return { bodies, torn };
        }
        if (message.type === NLMSG_DONE) {
          // A dump that fails midway reports that in its last message.
          const problem = message.body.length >= 4 ? -readS32(message.body, 0) : 0;
          if (problem === Errno.EINTR) return { bodies, torn: true };
          if (problem > 0) throw new NetlinkError(request.op, problem);
          return { bodies, torn };
        }
        bodies.push(message.body);
        if (!(message.flags & NLM_F_MULTI)) return { bodies, torn };
      }
    }
  }
}

/** nf_tables frees deleted objects after a grace period, and the last close of a socket waits for it. */
function deletesInNft(type: number): boolean {
  return NFT_DELETIONS.includes(type & 0xff);
}
