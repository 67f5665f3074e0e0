// How are questions put to DHCPv6 servers, and answers awaited?
import { ipFromBytes, ipToBytes, parseIp, renderIp } from '../../../../src/net/ip.ts';
import {
  type InetSocket,
  POLLIN,
  receiveBytes,
  sendBytesTo,
  waitFor,
} from '../../../../src/sys/inet-socket.ts';
import { type Deadline, type Exchange, exchange } from '../../client/exchange.ts';
import type { Identity } from '../../identity.ts';
import { decodeMessage, encodeMessage, type Message, TRANSACTIONS } from '../codec/message.ts';
import { Code, findOption, isLinkLocal, type Options } from '../codec/options.ts';

/** RFC 9915, section 7.2 */
export const CLIENT_PORT = 546;
const SERVER_PORT = 547;
/** RFC 9915, section 7.1: all relay agents and servers. */
const SERVERS = ipToBytes(parseIp('ff02::1:2'));

/** RFC 9915, section 15: RAND. */
const JITTER = 0.1;
/** More than a server has to say: what is larger is cut, and ignored. */
const ROOM_BYTES = 4096;

/** The client's end: a socket at its link-local address. */
export interface Client extends Identity {
  readonly socket: InetSocket;
  /** Index of the interface. */
  readonly scope: number;
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

/** Puts a question until it is answered, as {@link exchange} does. */
export function ask<T>(
  client: Client,
  question: Question,
  accept: (answer: Answer) => T | undefined,
  deadline: Deadline,
): Promise<T | undefined> {
  const transaction = (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) % TRANSACTIONS;
  const startedAt = performance.now();
  const room = new Uint8Array(ROOM_BYTES);
  const ends: Exchange<Answer> = {
    send: () => send(client, question, transaction, performance.now() - startedAt),
    wait: ms => waitFor([[client.socket, POLLIN]], ms),
    receive: () => receive(client, transaction, room),
    jitter: JITTER,
  };
  return exchange(ends, accept, deadline);
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
function receive(client: Client, transaction: number, room: Uint8Array): Answer | undefined {
  const received = receiveBytes(client.socket, room);
  const from = received?.from && ipFromBytes(received.from.address);
  const message = received && decodeMessage(received.bytes, transaction);
  const server = message && findOption(message.options, Code.serverId);
  if (!from || !isLinkLocal(from) || !message || !server?.length || !isFor(client, message)) return undefined;
  return { message, server, from: renderIp(from) };
}

/** RFC 9915, section 16: an answer names its client. */
function isFor({ duid }: Client, { options }: Message): boolean {
  const named = findOption(options, Code.clientId);
  return named !== undefined && Buffer.compare(named, duid) === 0;
}
