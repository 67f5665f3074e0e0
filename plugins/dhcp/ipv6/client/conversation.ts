// How are questions put to DHCPv6 servers, and answers awaited?
import { ipFromBytes, ipToBytes, parseIp, renderIp } from '../../../../src/net/ip.ts';
import {
  type InetSocket,
  POLLIN,
  receiveBytes,
  sendBytesTo,
  waitFor,
} from '../../../../src/sys/inet-socket.ts';
import type { Identity } from '../../identity.ts';
import { decodeMessage, encodeMessage, type Message, TRANSACTIONS } from '../codec/message.ts';
import { Code, findOption, type Options } from '../codec/options.ts';
import { isLinkLocal } from '../codec/values.ts';

/** RFC 9915, section 7.2 */
export const CLIENT_PORT = 546;
const SERVER_PORT = 547;
/** RFC 9915, section 7.1: all relay agents and servers. */
const SERVERS = ipToBytes(parseIp('ff02::1:2'));

/** First pause before a question is repeated (RFC 9915, section 7.6: SOL_TIMEOUT, REQ_TIMEOUT); each further one is twice as long. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 8_000;
/** RFC 9915, section 15: RAND. */
const JITTER = 0.1;
/** Longest time in which this thread does nothing else. */
const SLICE_MS = 100;
/** More than a server has to say: what is larger is cut, and ignored. */
const ROOM_BYTES = 4096;

/** The client's end: a socket at its link-local address. */
export interface Client extends Identity {
  readonly socket: InetSocket;
  /** Index of the interface. */
  readonly scope: number;
}

/** When to give up, in milliseconds of `performance.now()`; an answer may bring it forward. */
export interface Deadline {
  at: number;
}

/** A message from a server to this client. */
export interface Answer {
  readonly message: Message;
  /** DUID of the server. */
  readonly server: Uint8Array;
  /** Link-local address of the server or of the relay agent before it, in text. */
  readonly from: string;
}

/** A question: all but what the client adds itself. */
export type Question = Pick<Message, 'type' | 'options'>;

/**
 * Puts a question, and repeats it until an answer is accepted or time is up.
 * @param accept what the answer means; undefined to wait for another one
 * @returns undefined when time was up
 * @throws SystemError when the interface is gone or down
 */
export async function ask<T>(
  client: Client,
  question: Question,
  accept: (answer: Answer) => T | undefined,
  deadline: Deadline,
): Promise<T | undefined> {
  const transaction = (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) % TRANSACTIONS;
  const startedAt = performance.now();
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    send(client, question, transaction, performance.now() - startedAt);
    const again = performance.now() + pause * (1 + JITTER * (2 * Math.random() - 1));
    const outcome = await listen(client, transaction, accept, () => Math.min(again, deadline.at));
    if (outcome !== undefined || performance.now() >= deadline.at) return outcome;
  }
}

function send(
  { socket, scope, duid }: Client,
  { type, options }: Question,
  transaction: number,
  elapsedMs: number,
): void {
  const hundredths = Math.min(Math.floor(elapsedMs / 10), 0xffff);
  const all: Options = [
    [Code.clientId, duid],
    [Code.elapsedTime, Uint8Array.of(hundredths >> 8, hundredths & 0xff)],
    ...options,
  ];
  const bytes = encodeMessage({ type, transaction, options: all });
  sendBytesTo(socket, bytes, { address: SERVERS, port: SERVER_PORT, scope });
}

/** Anything that does not answer this client's question is ignored. */
async function listen<T>(
  client: Client,
  transaction: number,
  accept: (answer: Answer) => T | undefined,
  until: () => number,
): Promise<T | undefined> {
  const room = new Uint8Array(ROOM_BYTES);
  let yielded = performance.now();
  for (let left = until() - performance.now(); left > 0; left = until() - performance.now()) {
    const isThere = waitFor([[client.socket, POLLIN]], Math.min(left, SLICE_MS));
    if (!isThere || performance.now() - yielded > SLICE_MS) {
      // Signals and timers get their turn, however much there is to read.
      await Bun.sleep(0);
      yielded = performance.now();
      continue;
    }
    const received = receiveBytes(client.socket, room);
    const from = received?.from && ipFromBytes(received.from.address);
    const message = received && decodeMessage(received.bytes, transaction);
    const server = message && findOption(message.options, Code.serverId);
    if (!from || !isLinkLocal(from) || !message || !server?.length) continue;
    if (!isFor(client, message)) continue;
    const outcome = accept({ message, server, from: renderIp(from) });
    if (outcome !== undefined) return outcome;
  }
  return undefined;
}

/** RFC 9915, section 16: an answer names its client. */
function isFor({ duid }: Client, { options }: Message): boolean {
  const named = findOption(options, Code.clientId);
  return named !== undefined && Buffer.compare(named, duid) === 0;
}
