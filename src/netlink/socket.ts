// How are requests sent to the kernel, how are its answers received, and what is a refusal?

import { closeSync } from 'node:fs';
import { Errno, errnoName, renderErrno } from '../sys/errno.ts';
import { faultAt } from '../sys/fault.ts';
import {
  AF,
  checked,
  closeLater,
  errno,
  libc,
  MSG,
  ptr,
  SOCK,
  SOL_SOCKET,
  SystemError,
} from '../sys/libc.ts';
import {
  align4,
  attrs,
  decodeMessages,
  type Envelope,
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
  type Request,
  readS32,
  str,
  u32,
} from './codec.ts';
import { traceMessages } from './trace.ts';

/** An error that the kernel returned for a request. */
export class NetlinkError extends Error {
  override readonly name = 'NetlinkError';
  /** The requested operation, human-readable: `create link "cni0" of kind bridge`. */
  readonly op: string;
  /** The kernel's error number, positive; compare with `Errno`. */
  readonly errno: number;
  /** The kernel's own message (extended acknowledgement), if any. */
  readonly kernelMessage: string | undefined;

  /** @param advice what to do, human-readable */
  constructor(op: string, errno: number, kernelMessage?: string, advice?: string) {
    const said = kernelMessage ? `, kernel says "${kernelMessage}"` : '';
    super(`Cannot ${op}: ${renderErrno(errno)}${said}${advice ? `; ${advice}` : ''}`);
    this.op = op;
    this.errno = errno;
    this.kernelMessage = kernelMessage;
  }
}

/** True when the thrown value is a refusal by the kernel with one of these numbers. */
export function isNetlinkError(thrown: unknown, ...errnos: readonly number[]): thrown is NetlinkError {
  return thrown instanceof NetlinkError && errnos.includes(thrown.errno);
}

/**
 * Runs a request and ignores refusals with these numbers: for creation that tolerates existing objects and deletion that
 * tolerates missing ones.
 */
export function tolerating<T>(errnos: readonly number[], request: () => T): T | undefined {
  try {
    return request();
  } catch (thrown) {
    if (isNetlinkError(thrown, ...errnos)) return undefined;
    throw thrown;
  }
}

/** linux/netlink.h, protocols */
export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;

/** A dump is interrupted when the table changes during it, which on a busy node happens often, but not forever. */
const DUMP_ATTEMPTS = 20;

/** In a namespace of others it may happen forever. */
const DUMP_ATTEMPTS_OF_OTHERS = 3;

/** Acknowledgements stay in the receive buffer until all requests have been executed, so it must have room for them. */
const MAX_AT_ONCE = 100;

/** linux/netfilter/nf_tables.h, NFT_MSG_DELTABLE, _DELCHAIN, _DELRULE, _DELSET, _DELSETELEM: transactions are of nf_tables. */
const NFT_DELETIONS = [2, 5, 8, 11, 14];

/** For refusals of a transaction that contains no change. */
const COMMIT = { op: 'commit' };

type Replies = readonly Uint8Array[] | Refusal;

/** A request for one object. */
export interface Question<T> extends Request {
  /** Refusals that mean that it does not exist. */
  readonly absent: readonly number[];
  /** Reads the answer; undefined when it does not exist after all. */
  readonly read: (body: Uint8Array) => T | undefined;
}

type Answers<T> = { [K in keyof T]: T[K] extends Question<infer V> ? V | undefined : never };

/** The outcome of one of several requests: the bodies received before its acknowledgement, or the refusal. */
export type Outcome = readonly Uint8Array[] | NetlinkError;

/**
 * One netlink socket. It belongs to the namespace in which it was opened for its whole life. All calls are synchronous: the
 * kernel answers in microseconds, and a request never receives another one's answer.
 */
export class NetlinkSocket {
  readonly #protocol: number;
  readonly #isOfOthers: boolean;
  /** Negative without the protocol in the kernel, which then has none of its objects: requests are refused, not the socket. */
  readonly #fd: number = -1;
  #seq = 0;
  /** nf_tables frees deleted objects after a grace period, and the last close of a socket waits for it. */
  #hasDeleted = false;

  /**
   * @param options `isOfOthers`: what is in the namespace is up to other programs, which may change its tables all the time, on purpose too.
   * A dump that is always interrupted then has all that was seen in any, which is more than there is at one moment.
   */
  constructor(protocol: number, { isOfOthers = false } = {}) {
    this.#protocol = protocol;
    this.#isOfOthers = isOfOthers;
    try {
      this.#fd = openNetlink(protocol);
    } catch (thrown) {
      if (!(thrown instanceof SystemError && thrown.errno === Errno.EPROTONOSUPPORT)) throw thrown;
    }
  }

  /**
   * Sends one request and waits for its acknowledgement.
   * @returns bodies of the messages before it (the object, if `NLM_F_ECHO` or a get asked for one)
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
    for (const outcome of outcomes) if (isRefusal(outcome)) throw outcome.toError();
    return (outcomes as Uint8Array[][]).flat();
  }

  /**
   * Like {@link requestAll}, but returns refusals as outcomes: for deletions of what may no longer exist.
   * @returns outcomes in the order of the requests
   */
  attemptAll(requests: readonly Request[]): Outcome[] {
    return this.#tryAll(requests).map(one => (isRefusal(one) ? one.toError() : one));
  }

  /**
   * Asks for one object.
   * @returns undefined if it does not exist
   * @throws NetlinkError of a refusal that means anything else
   */
  ask<T>(question: Question<T>): T | undefined {
    return this.askAll([question])[0];
  }

  /** Like {@link ask} for several questions at once, in their order. */
  askAll<const T extends readonly Question<unknown>[]>(questions: T): Answers<T> {
    const outcomes = this.#tryAll(questions);
    return questions.map(({ absent, read }, i) => {
      const outcome = outcomes[i] ?? [];
      if (!isRefusal(outcome)) return outcome[0] && read(outcome[0]);
      if (absent.includes(outcome.errno)) return undefined;
      throw outcome.toError();
    }) as Answers<T>;
  }

  /**
   * Sends the messages as one nf_tables transaction: all take effect or none does. Batch begin and end are not acknowledged.
   * Without the end, the kernel checks the messages and applies nothing.
   * @throws NetlinkError of the first message that the kernel refused
   */
  transaction(begin: Request, requests: readonly Request[], end?: Request): Uint8Array[] {
    this.#refuse(requests[0] ?? begin);
    const first = this.#envelope(begin, NLM_F_REQUEST);
    const envelopes = this.#envelopes(requests);
    const last = end ? [this.#envelope(end, NLM_F_REQUEST)] : [];
    const hasDeletions = requests.some(({ type }) => NFT_DELETIONS.includes(type & 0xff));
    this.#hasDeleted ||= end !== undefined && hasDeletions;
    return exchange(this.#protocol, requests, () => {
      this.#send([first, ...envelopes, ...last]);
      const { outcomes, refusal } = this.#collectAnswers(envelopes, requests, first.seq);
      if (refusal) throw refusal.toError();
      return (outcomes as Uint8Array[][]).flat();
    });
  }

  /**
   * All objects that match a get request. Repeats a dump that the kernel reports as interrupted by a concurrent change, up to a limit.
   * @param only skips objects that contain none of these byte strings
   */
  dump(request: Request, only?: readonly Uint8Array[]): Uint8Array[] {
    this.#refuse(request);
    return exchange(this.#protocol, [request], () => this.#dumpWhole(request, only));
  }

  close(): void {
    if (this.#hasDeleted) closeLater(this.#fd);
    else if (this.#fd >= 0) closeSync(this.#fd);
  }

  #dumpWhole(request: Request, only: readonly Uint8Array[] | undefined): Uint8Array[] {
    const seen = new Map<string, Uint8Array>();
    for (let left = this.#isOfOthers ? DUMP_ATTEMPTS_OF_OTHERS : DUMP_ATTEMPTS; left > 0; left--) {
      const envelope = this.#envelope(request, NLM_F_REQUEST | NLM_F_DUMP);
      this.#send([envelope]);
      const { bodies, torn } = this.#collectDump(envelope, request, only);
      if (!torn) return bodies;
      if (this.#isOfOthers) for (const body of bodies) seen.set(Buffer.from(body).toString('latin1'), body);
    }
    if (this.#isOfOthers) return [...seen.values()];
    throw new NetlinkError(request.op, Errno.EINTR, 'the table kept changing');
  }

  #refuse(request: Request): void {
    const refusal = this.#refusalOf(request);
    if (refusal) throw refusal.toError();
  }

  #refusalOf(request: Request): Refusal | undefined {
    return this.#fd < 0 ? newRefusal(request, Errno.EPROTONOSUPPORT) : plannedRefusal(request);
  }

  #tryAll(requests: readonly Request[]): Replies[] {
    const outcomes: (Replies | undefined)[] = requests.map(one => this.#refusalOf(one));
    // A request with a planned refusal is not sent; the others are still executed, because they are independent.
    const sent = requests.map((_, i) => i).filter(i => outcomes[i] === undefined);
    for (let at = 0; at < sent.length; at += MAX_AT_ONCE) {
      const indexes = sent.slice(at, at + MAX_AT_ONCE);
      const answers = this.#exchange(indexes.flatMap(i => requests[i] ?? []));
      for (const [n, i] of indexes.entries()) outcomes[i] = answers[n];
    }
    return outcomes.map(outcome => outcome ?? []);
  }

  #exchange(requests: readonly Request[]): Replies[] {
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
  ): { outcomes: Replies[]; refusal: Refusal | undefined } {
    const bodies: Uint8Array[][] = requests.map(() => []);
    const outcomes: Replies[] = [...bodies];
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
          // Without CAP_NET_ADMIN, netfilter refuses all questions of a datagram in its answer to the first one.
          const isAboutAll = opening === undefined && isUnprivileged(this.#protocol, no);
          if (no) outcomes.fill(no, i, isAboutAll ? undefined : i + 1);
          refusal ??= no;
          isOver ||= isAboutAll || i === last;
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

/** asm-generic/socket.h; those that force a size can exceed net.core.wmem_max, and need CAP_NET_ADMIN in the first user namespace. */
const SO_SNDBUF = 7;
const SO_RCVBUF = 8;
const SO_RCVTIMEO = 20;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;

/** linux/netlink.h */
export const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

const BUFFER_BYTES = 1 << 20;
/** Maximum wait for an answer: deleting devices waits for grace periods; nothing else takes long. */
const ANSWER_DEADLINE_S = 30;
/** struct sockaddr_nl: the kernel chooses everything except the family. */
const ADDRESS = new Uint16Array([AF.NETLINK, 0, 0, 0, 0, 0]);

/**
 * Opens a socket in the thread's namespace, with strict checks, the kernel's error messages, and a timeout for answers.
 * @returns its descriptor
 */
export function openNetlink(protocol: number): number {
  const kind = SOCK.RAW | SOCK.CLOEXEC;
  const fd = checked(libc().socket(AF.NETLINK, kind, protocol), () => 'open a netlink socket');
  checked(libc().bind(fd, ptr(ADDRESS), ADDRESS.byteLength), () => 'bind a netlink socket');
  setOption(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES);
  setOption(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES);
  for (const option of [NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK])
    setOption(fd, SOL_NETLINK, option, 1);
  setReceiveTimeout(fd, ANSWER_DEADLINE_S);
  return fd;
}

/** Gives a socket a larger buffer for what it receives, where this user may; otherwise the usual size has to be enough. */
export function enlargeReceiveBuffer(fd: number, bytes: number): void {
  setOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes);
}

/** Sets how long a read waits for a message. */
export function setReceiveTimeout(fd: number, seconds: number): void {
  /** struct timeval */
  const time = new BigInt64Array([BigInt(seconds), 0n]);
  libc().setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, ptr(time), time.byteLength);
}

/**
 * Has the kernel send notifications of a group to a socket.
 * @param group RTNLGRP_* of linux/rtnetlink.h, NFNLGRP_* of linux/netfilter/nfnetlink.h
 * @param whose for the error
 */
export function joinGroup(fd: number, group: number, whose = 'the kernel'): void {
  setMembership(fd, NETLINK_ADD_MEMBERSHIP, group, whose);
}

/** Sets an option of SOL_NETLINK that decides which notifications a socket gets. @throws SystemError */
export function setMembership(fd: number, option: number, value: number, whose: string): void {
  value32[0] = value;
  const done = libc().setsockopt(fd, SOL_NETLINK, option, ptr(value32), 4);
  checked(done, () => `subscribe to changes of ${whose}`);
}

const value32 = new Int32Array(1);

function setOption(fd: number, level: number, option: number, value: number): void {
  value32[0] = value;
  // Continue without an option that an old kernel lacks: the only loss is terser errors.
  libc().setsockopt(fd, level, option, ptr(value32), 4);
}

/**
 * Sends everything as one message, as a transaction requires. Grows the socket's buffer if necessary: thousands of elements
 * need several megabytes.
 */
export function sendWhole(fd: number, buffer: Uint8Array): void {
  if (trySend(fd, buffer)) return;
  // The kernel doubles the value; a failure shows in the next send.
  setOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, buffer.length + 1024);
  if (trySend(fd, buffer)) return;
  throw new SystemError(
    `send a netlink request of ${buffer.length} bytes, more than the socket's buffer, which only root of the host may enlarge beyond net.core.wmem_max`,
    Errno.EMSGSIZE,
  );
}

/** @returns false when the message is too large */
function trySend(fd: number, buffer: Uint8Array): boolean {
  const sent = libc().send(fd, ptr(buffer), buffer.length, 0);
  if (Number(sent) < 0 && errno() === Errno.EMSGSIZE) return false;
  checked(sent, () => 'send a netlink request');
  return true;
}

/** The kernel packs the messages of a dump into datagrams of at most this size. */
const RECEIVE_BYTES = 1 << 18;

/** More datagrams than any dump consists of. */
const MAX_UNREAD = 100_000;

/**
 * Waits for the next datagram; returns nothing when a signal interrupted the wait.
 * @param only see {@link decodeMessages}
 * @throws SystemError on a timeout, or when the socket's buffer overflowed; nothing is left unread then
 */
export function receiveMessages(fd: number, protocol: number, only?: readonly Uint8Array[]): Envelope[] {
  const received = Number(libc().recv(fd, ptr(receiveBuffer()), RECEIVE_BYTES, 0));
  if (received < 0) {
    const problem = errno();
    if (problem === Errno.EINTR) return [];
    drain(fd);
    throw new SystemError('receive a reply from the kernel', problem);
  }
  const messages = decodeMessages(receiveBuffer(), received, only);
  traceMessages('recv', protocol, messages);
  return messages;
}

/** The caller no longer expects the rest of the answer, and an unfinished dump would block the next one. */
function drain(fd: number): void {
  for (let left = MAX_UNREAD; left > 0; left--) {
    const received = Number(libc().recv(fd, ptr(receiveBuffer()), RECEIVE_BYTES, MSG.DONTWAIT));
    if (received < 0 && errno() === Errno.EAGAIN) return;
  }
}

let shared: Uint8Array | undefined;

/** One buffer for all sockets: calls are synchronous, and what outlives them is copied. */
function receiveBuffer(): Uint8Array {
  shared ??= new Uint8Array(RECEIVE_BYTES);
  return shared;
}

/** linux/netlink.h, enum nlmsgerr_attrs */
const ackAttrs = attrs('ack', {
  msg: [1, str],
  offset: [2, u32],
});

/**
 * A refusal by the kernel. Most are expected answers to questions. Creating an Error costs more than the question, so that is
 * deferred until the refusal is thrown.
 */
interface Refusal {
  /** The kernel's error number, positive. */
  readonly errno: number;
  toError(): NetlinkError;
}

function newRefusal(asked: { readonly op: string }, errno: number, words?: string): Refusal {
  return { errno, toError: () => new NetlinkError(asked.op, errno, words) };
}

function isRefusal(one: Replies): one is Refusal {
  return 'errno' in one;
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
  return newRefusal(asked, -error, words);
}

function isUnprivileged(protocol: number, refusal: Refusal | undefined): boolean {
  return protocol === NETLINK_NETFILTER && refusal?.errno === Errno.EPERM;
}

function plannedRefusal(asked: { readonly op: string }): Refusal | undefined {
  const fault = faultAt(() => asked.op);
  return fault === undefined ? undefined : newRefusal(asked, fault);
}

/** One request, transaction or dump, from sending it to the last answer. */
export interface Exchange {
  /** `rtnetlink` or `netfilter`; `iptables` for runs of its programs. */
  readonly family: string;
  /** The requested operation, human-readable. */
  readonly what: string;
  /** `performance.now()` of this process. */
  readonly startedAt: number;
  readonly endedAt: number;
  /** Why it was refused, for example `ENODEV`; the caller may have expected it. */
  readonly refusal?: string;
}

type Listener = (exchange: Exchange) => void;

/** Names of the protocols in use (linux/netlink.h). */
const NETLINK_FAMILIES: Readonly<Record<number, string>> = { 0: 'rtnetlink', 12: 'netfilter' };

/** Number of requests of one exchange that are named; the rest are only counted. */
const NAMED = 3;

let listener: Listener | undefined;

/** Reports every further exchange of this process to one listener; without a listener nothing is recorded. */
export function listenToExchanges(next: Listener | undefined): void {
  listener = next;
}

/**
 * Runs the work, which is one exchange with the kernel, and reports it.
 * @param family of the exchange, or the number of its protocol
 * @param asked the requested operations, human-readable
 * @param work may report a refusal that it does not throw, or the refusal's number
 */
export function exchange<T>(
  family: string | number,
  asked: readonly { readonly op: string }[],
  work: (refuse: (refusal: unknown) => void) => T,
): T {
  if (listener === undefined) return work(ignore);
  const startedAt = performance.now();
  let refusal: unknown;
  try {
    return work(thrown => {
      refusal ??= thrown;
    });
  } catch (thrown) {
    refusal = thrown;
    throw thrown;
  } finally {
    listener({
      family: typeof family === 'string' ? family : (NETLINK_FAMILIES[family] ?? `netlink ${family}`),
      what: describe(asked.map(({ op }) => op)),
      startedAt,
      endedAt: performance.now(),
      ...(refusal === undefined ? {} : { refusal: nameOf(refusal) }),
    });
  }
}

function ignore(): void {}

function describe(all: readonly string[]): string {
  const more = all.length - NAMED;
  return [...all.slice(0, NAMED), ...(more > 0 ? [`${more} more`] : [])].join('; ');
}

function nameOf(refusal: unknown): string {
  if (typeof refusal === 'number') return errnoName(refusal);
  if (refusal instanceof NetlinkError) return errnoName(refusal.errno);
  return refusal instanceof Error ? refusal.message : String(refusal);
}
