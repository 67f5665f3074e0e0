// How are questions put to DHCP servers through an interface, and answers awaited?
import { awaitPacket, type PacketSocket, receivePacket, sendPacket } from '../../../src/sys/packet-socket.ts';
import { decodeDatagram, encodeDatagram } from '../codec/datagram.ts';
import {
  type ClientMessage,
  decodeMessage,
  encodeMessage,
  MAX_MESSAGE_BYTES,
  type ServerMessage,
} from '../codec/message.ts';
import { Code } from '../codec/options.ts';
import { type Deadline, type Exchange, exchange } from './exchange.ts';

/** RFC 2131, section 4.1 */
export const SERVER_PORT = 67;
export const CLIENT_PORT = 68;

const ANY = new Uint8Array(4);
const EVERYONE = new Uint8Array(4).fill(255);
const EVERY_NEIGHBOUR = new Uint8Array(6).fill(255);

/** RFC 2131 suggests a first pause of four seconds, for clients that start by the hundred; here the runtime waits. */
const JITTER = 0.25;
/** Headers of IPv4 and UDP, and a message: what is larger is cut, and ignored. */
const ROOM_BYTES = 60 + 8 + MAX_MESSAGE_BYTES;

/** Where a message goes; without one, to everyone on the link. */
export interface Destination {
  /** 4 bytes. */
  readonly server: Uint8Array;
  /** Hardware address of the server, or of the router to it. */
  readonly mac: Uint8Array;
}

/** The client's end: a socket on its interface. */
export interface Client {
  readonly socket: PacketSocket;
  readonly mac: Uint8Array;
  /** Value of option 61. */
  readonly clientId: Uint8Array;
  /** When it began, in milliseconds of `performance.now()`. */
  readonly startedAt: number;
}

/** A message from a server, and the hardware address that it came from. */
export interface Answer {
  readonly message: ServerMessage;
  readonly mac: Uint8Array;
}

/** A question: all fields but those that the client has anyway. */
export type Question = Omit<ClientMessage, 'mac' | 'secs' | 'xid'>;

/** Puts a question until it is answered, as {@link exchange} does. */
export function ask<T>(
  client: Client,
  question: Question,
  accept: (answer: Answer) => T | undefined,
  deadline: Deadline,
  to?: Destination,
): Promise<T | undefined> {
  const xid = crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  const room = new Uint8Array(ROOM_BYTES);
  const ends: Exchange<Answer> = {
    send: () => send(client, question, xid, to),
    wait: ms => awaitPacket(client.socket, ms),
    receive: () => receive(client, xid, room),
    jitter: JITTER,
  };
  return exchange(ends, accept, deadline);
}

/** Sends a message that has no answer. @throws SystemError when the interface is gone or down */
export function tell(client: Client, question: Question, to?: Destination): void {
  send(client, question, crypto.getRandomValues(new Uint32Array(1))[0] ?? 0, to);
}

function send(client: Client, question: Question, xid: number, to?: Destination): void {
  const secs = Math.floor((performance.now() - client.startedAt) / 1000);
  const payload = encodeMessage({ ...question, xid, secs, mac: client.mac });
  const address = question.ciaddr.some(Boolean) ? question.ciaddr : ANY;
  const packet = encodeDatagram(
    { address, port: CLIENT_PORT },
    { address: to?.server ?? EVERYONE, port: SERVER_PORT },
    payload,
  );
  sendPacket(client.socket, packet, to?.mac ?? EVERY_NEIGHBOUR);
}

/** Anything that does not answer this client's question is ignored. */
function receive(client: Client, xid: number, room: Uint8Array): Answer | undefined {
  const packet = receivePacket(client.socket, room);
  const payload = packet && decodeDatagram(packet.bytes, SERVER_PORT, CLIENT_PORT);
  const message = payload && decodeMessage(payload, { xid, mac: client.mac });
  return message && namesClient(client, message) ? { message, mac: packet.from } : undefined;
}

/** Clients that share a hardware address differ in the id, which servers may repeat (RFC 6842). */
function namesClient({ clientId }: Client, { options }: ServerMessage): boolean {
  const repeated = options.get(Code.clientId);
  return repeated === undefined || Buffer.compare(repeated, clientId) === 0;
}
