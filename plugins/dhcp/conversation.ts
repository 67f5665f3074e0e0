// How is a question put to servers, and which of their answers counts?

import { parseMac } from '../../src/net/interface.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { bindSocket, closeSocket, openSocket } from '../../src/sys/inet-socket.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import {
  awaitPacket,
  closePacketSocket,
  openPacketSocket,
  type PacketSocket,
  receivePacket,
  sendPacket,
  udpTo,
} from '../../src/sys/packet-socket.ts';
import {
  type ClientMessage,
  Code,
  decodeMessage,
  encodeMessage,
  MAX_MESSAGE_BYTES,
  type ServerMessage,
} from './codec.ts';

/** First pause before a question is repeated; each further one is twice as long. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 8_000;
/** Longest time in which this thread does nothing else. */
const SLICE_MS = 100;
/** How long the lease's own server may contradict another one. */
const SECOND_OPINION_MS = 500;

/** When to give up, in milliseconds of `performance.now()`; an answer may bring it forward. */
export interface Deadline {
  at: number;
}

/** Why there is no lease, for the error. */
export interface Refusals {
  /** One line for each answer that could not be used. */
  readonly reasons: string[];
}

/** A client's socket, and what it sends. */
export interface Exchange<A> {
  send(): void;
  /** Whether a packet is there, waiting for at most so many milliseconds. */
  wait(ms: number): boolean;
  /** The next packet; undefined if it does not answer this client's question. */
  receive(): A | undefined;
  /** By which part a pause is longer or shorter, so that clients that started together do not go on together. */
  readonly jitter: number;
}

/**
 * Puts a question, and repeats it until an answer is accepted or time is up.
 * @param accept what the answer means; undefined to wait for another one
 * @returns undefined when time was up
 * @throws SystemError when the interface is gone or down
 */
export async function exchange<A, T>(
  ends: Exchange<A>,
  accept: (answer: A) => T | undefined,
  deadline: Deadline,
): Promise<T | undefined> {
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    ends.send();
    const again = performance.now() + pause * (1 + ends.jitter * (2 * Math.random() - 1));
    const outcome = await listen(ends, accept, () => Math.min(again, deadline.at));
    if (outcome !== undefined || performance.now() >= deadline.at) return outcome;
  }
}

async function listen<A, T>(
  ends: Exchange<A>,
  accept: (answer: A) => T | undefined,
  until: () => number,
): Promise<T | undefined> {
  let yielded = performance.now();
  for (let left = until() - performance.now(); left > 0; left = until() - performance.now()) {
    const isThere = ends.wait(Math.min(left, SLICE_MS));
    if (!isThere || performance.now() - yielded > SLICE_MS) {
      // Signals and timers get their turn, however much there is to read.
      await Bun.sleep(0);
      yielded = performance.now();
      continue;
    }
    const answer = ends.receive();
    const outcome = answer && accept(answer);
    if (outcome !== undefined) return outcome;
  }
  return undefined;
}

/**
 * Puts a question about a lease. What its own server says counts at once. Any host can answer, so after another's answer the own
 * server gets the time to say otherwise; then a grant, which is an object, counts more than a refusal.
 * @param ask puts the question, with what accepts an answer
 */
export async function extend<A, V extends object | string>(
  ask: (accept: (answer: A) => V | undefined, deadline: Deadline) => Promise<V | undefined>,
  responseIn: (answer: A) => { readonly response: V | undefined; readonly isOwn: boolean } | undefined,
  giveUpAt: number,
): Promise<V | undefined> {
  const deadline = { at: giveUpAt };
  let other: V | undefined;
  const accept = (answer: A): V | undefined => {
    const { response, isOwn } = responseIn(answer) ?? {};
    if (response === undefined || isOwn) return response;
    if (other === undefined) deadline.at = Math.min(giveUpAt, performance.now() + SECOND_OPINION_MS);
    if (typeof other !== 'object') other = response;
    return undefined;
  };
  return (await ask(accept, deadline)) ?? other;
}

/** A server that repeats itself is noted once, and a flood of them is not kept. */
export function noteRefusal({ reasons }: Refusals, reason: string): void {
  if (reasons.length < 5 && !reasons.includes(reason)) reasons.push(reason);
}

const IP_BYTES = 20;
const UDP_BYTES = 8;
const UDP = 17;
const TTL = 64;

/** One end: an address of 4 bytes, and a port. */
interface Endpoint {
  readonly address: Uint8Array;
  readonly port: number;
}

/** Encodes an unfragmented datagram, with both checksums. */
export function encodeDatagram(from: Endpoint, to: Endpoint, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(IP_BYTES + UDP_BYTES + payload.length);
  const view = new DataView(bytes.buffer);
  bytes[0] = 0x45;
  view.setUint16(2, bytes.length);
  bytes[8] = TTL;
  bytes[9] = UDP;
  bytes.set(from.address, 12);
  bytes.set(to.address, 16);
  view.setUint16(10, checksum(bytes.subarray(0, IP_BYTES)));
  view.setUint16(20, from.port);
  view.setUint16(22, to.port);
  view.setUint16(24, UDP_BYTES + payload.length);
  bytes.set(payload, IP_BYTES + UDP_BYTES);
  const pseudo = Uint8Array.from([...bytes.subarray(12, 20), 0, UDP, ...bytes.subarray(24, 26)]);
  const sum = checksum(Uint8Array.from([...pseudo, ...bytes.subarray(IP_BYTES)]));
  // 0 would mean that there is no checksum (RFC 768).
  view.setUint16(26, sum || 0xffff);
  return bytes;
}

/**
 * The payload of a datagram from and to these ports; undefined for anything else. The checksum is not verified: a packet that
 * never leaves the machine carries an unfinished one.
 */
export function decodeDatagram(packet: Uint8Array, fromPort: number, toPort: number): Uint8Array | undefined {
  if (packet.length < IP_BYTES || (packet[0] ?? 0) >> 4 !== 4) return undefined;
  const header = ((packet[0] ?? 0) & 0x0f) * 4;
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
  const total = view.getUint16(2);
  const isWhole = (view.getUint16(6) & 0x3fff) === 0;
  if (header < IP_BYTES || total > packet.length || total < header + UDP_BYTES || !isWhole) return undefined;
  if (packet[9] !== UDP) return undefined;
  if (view.getUint16(header) !== fromPort || view.getUint16(header + 2) !== toPort) return undefined;
  const length = view.getUint16(header + 4);
  if (length < UDP_BYTES || header + length > total) return undefined;
  return packet.slice(header + UDP_BYTES, header + length);
}

/** RFC 1071 */
function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += ((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

/** RFC 2131, section 4.1 */
const SERVER_PORT = 67;
const CLIENT_PORT = 68;

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
export interface Dhcp4Answer {
  readonly message: ServerMessage;
  readonly mac: Uint8Array;
}

/** A question: all fields but those that the client has anyway. */
export type Question = Omit<ClientMessage, 'mac' | 'secs' | 'xid'>;

/** Puts a question until it is answered, as {@link exchange} does. */
export function ask<T>(
  client: Client,
  question: Question,
  accept: (answer: Dhcp4Answer) => T | undefined,
  deadline: Deadline,
  to?: Destination,
): Promise<T | undefined> {
  const xid = crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  const room = new Uint8Array(ROOM_BYTES);
  const ends: Exchange<Dhcp4Answer> = {
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
function receive(client: Client, xid: number, room: Uint8Array): Dhcp4Answer | undefined {
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

/** linux/if_ether.h */
const ETH_P_IP = 0x0800;

/** The interface through which a client talks. */
export interface ClientInterface {
  readonly netns: Netns;
  readonly link: Link;
}

/** Runs a function with a client on the interface; its sockets are closed when the function is done. */
export async function withClient<T>(
  { netns, link }: ClientInterface,
  clientId: Uint8Array,
  work: (client: Client) => T | Promise<T>,
): Promise<T> {
  if (!link.mac)
    throw new Error(
      `Cannot use DHCP on "${link.name}": an interface of kind "${link.kind}" has no hardware address`,
    );
  const socket = inNetns(netns, () => openPacketSocket(link.index, ETH_P_IP, udpTo(CLIENT_PORT)));
  try {
    return await work({ socket, mac: parseMac(link.mac), clientId, startedAt: performance.now() });
  } finally {
    closePacketSocket(socket);
  }
}

/**
 * The same where the interface has its address already: keeps the kernel from telling the server, which answers to that address,
 * that the port is unreachable.
 */
export function withAddressedClient<T>(
  place: ClientInterface,
  clientId: Uint8Array,
  work: (client: Client) => T | Promise<T>,
): Promise<T> {
  return withClient(place, clientId, async client => {
    const close = inNetns(place.netns, occupyPort);
    try {
      return await work(client);
    } finally {
      close();
    }
  });
}

/** @returns a function that frees the port */
function occupyPort(): () => void {
  const socket = openSocket('udp', 4);
  try {
    bindSocket(socket, 'udp', CLIENT_PORT);
  } catch {
    // A program of the container has the port, which does as well.
  }
  return () => closeSocket(socket);
}
