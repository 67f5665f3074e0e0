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

/** RFC 2131, section 4.1 */
export const SERVER_PORT = 67;
export const CLIENT_PORT = 68;

const ANY = new Uint8Array(4);
const EVERYONE = new Uint8Array(4).fill(255);
const EVERY_NEIGHBOUR = new Uint8Array(6).fill(255);

/**
 * First pause before a question is repeated; each further one is twice as long. RFC 2131 suggests four seconds, for clients that
 * start by the hundred; here the runtime waits.
 */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 8_000;
/** So that clients that started together do not go on together. */
const JITTER = 0.25;
/** Longest time in which this thread does nothing else. */
const SLICE_MS = 100;
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

/** When to give up, in milliseconds of `performance.now()`; an answer may bring it forward. */
export interface Deadline {
  at: number;
}

/** A message from a server, and the hardware address that it came from. */
export interface Answer {
  readonly message: ServerMessage;
  readonly mac: Uint8Array;
}

/** A question: all fields but those that the client has anyway. */
export type Question = Omit<ClientMessage, 'mac' | 'secs' | 'xid'>;

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
  to?: Destination,
): Promise<T | undefined> {
  const xid = crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    send(client, question, xid, to);
    const again = performance.now() + pause * (1 + JITTER * (2 * Math.random() - 1));
    const outcome = await listen(client, xid, accept, () => Math.min(again, deadline.at));
    if (outcome !== undefined || performance.now() >= deadline.at) return outcome;
  }
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
async function listen<T>(
  client: Client,
  xid: number,
  accept: (answer: Answer) => T | undefined,
  until: () => number,
): Promise<T | undefined> {
  const room = new Uint8Array(ROOM_BYTES);
  let yielded = performance.now();
  for (let left = until() - performance.now(); left > 0; left = until() - performance.now()) {
    const isThere = awaitPacket(client.socket, Math.min(left, SLICE_MS));
    if (!isThere || performance.now() - yielded > SLICE_MS) {
      // Signals and timers get their turn, however much there is to read.
      await Bun.sleep(0);
      yielded = performance.now();
      continue;
    }
    const packet = receivePacket(client.socket, room);
    const payload = packet && decodeDatagram(packet.bytes, SERVER_PORT, CLIENT_PORT);
    const message = payload && decodeMessage(payload, { xid, mac: client.mac });
    if (!message || !namesClient(client, message)) continue;
    const outcome = accept({ message, mac: packet.from });
    if (outcome !== undefined) return outcome;
  }
  return undefined;
}

/** Clients that share a hardware address differ in the id, which servers may repeat (RFC 6842). */
function namesClient({ clientId }: Client, { options }: ServerMessage): boolean {
  const repeated = options.get(Code.clientId);
  return repeated === undefined || Buffer.compare(repeated, clientId) === 0;
}
