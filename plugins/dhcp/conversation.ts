// How is a question put to servers, and which of their answers counts?

import { attempt } from '../../src/cni/errors.ts';
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
import { pause } from '../../src/wait.ts';
import {
  type ClientMessage,
  Code,
  decodeDatagram,
  decodeMessage,
  encodeDatagram,
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

/** Why there is no lease, for the error: one line for each answer that could not be used. */
export type Refusals = string[];

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
export async function extend<A, L>(
  ask: (accept: (answer: A) => Response<L>, deadline: Deadline) => Promise<Response<L>>,
  responseIn: (answer: A) => { readonly response: Response<L>; readonly isOwn: boolean } | undefined,
  giveUpAt: number,
): Promise<Response<L>> {
  const deadline = { at: giveUpAt };
  let other: Response<L>;
  const accept = (answer: A): Response<L> => {
    const { response, isOwn } = responseIn(answer) ?? {};
    if (response === undefined || isOwn) return response;
    if (other === undefined) deadline.at = Math.min(giveUpAt, performance.now() + SECOND_OPINION_MS);
    if (typeof other !== 'object') other = response;
    return undefined;
  };
  return (await ask(accept, deadline)) ?? other;
}

/** What a lease is asked about; `confirm` comes after a restart: the server may have been replaced as well. */
export type LeaseQuestion = 'confirm' | 'renew' | 'rebind';

/**
 * What servers said about a lease: the next one; that its address must not be used any longer; that the server does not know it,
 * while it stays valid until its end; or nothing.
 */
export type Response<L> = { readonly lease: L } | 'over' | 'unknown' | undefined;

export interface ClientPolicy<L> {
  /** Servers whose answers count, in text, for IPv6 by their link-local addresses; undefined for any. */
  readonly servers: readonly string[] | undefined;
  /** Says in text who has the address of a new lease already; undefined if no host has. Absent where that cannot be found out. */
  readonly findHolder?: (lease: L) => Promise<string | undefined>;
}

export function isTrusted({ servers }: Pick<ClientPolicy<unknown>, 'servers'>, server: string): boolean {
  return servers === undefined || servers.includes(server);
}

/** The messages by which a family obtains a lease. */
interface Acquisition<L, O> {
  discover(hint: string | undefined): Promise<O | undefined>;
  request(offer: O, giveUpAt: number): Promise<Response<L>>;
  /** Tells the server that another host has the address. */
  decline(lease: L): unknown;
}

/** How long an offer is worth repeating the request for: at least this, and a slow server so many times as long as its offer took. */
const REQUEST_MS = 4_000;
const SLOWER = 4;
/** RFC 2131, 3.1.5: pause after a refused request, before it all begins again. */
const REFUSED_PAUSE_MS = 1_000;

/**
 * Obtains a lease from the first server that offers one (RFC 2131, section 3.1; RFC 9915, section 18.2.1).
 * @param wanted the address that the client had before, to be asked for
 * @param giveUpAt in milliseconds of `performance.now()`
 * @returns undefined when time was up; `refusals` then says what was heard
 */
export async function acquireBy<L, O>(
  { discover, request, decline }: Acquisition<L, O>,
  { findHolder }: ClientPolicy<L>,
  wanted: string | undefined,
  giveUpAt: number,
  refusals: Refusals,
): Promise<L | undefined> {
  for (let hint = wanted; performance.now() < giveUpAt; hint = undefined) {
    const asked = performance.now();
    const offer = await discover(hint);
    if (offer === undefined) return undefined;
    const offered = performance.now();
    const deadline = Math.min(giveUpAt, offered + Math.max(REQUEST_MS, SLOWER * (offered - asked)));
    const response = await request(offer, deadline);
    if (typeof response === 'object') {
      const holder = await findHolder?.(response.lease);
      if (holder === undefined) return response.lease;
      noteRefusal(refusals, holder);
      await decline(response.lease);
    }
    if (response !== undefined) await pause(Math.min(REFUSED_PAUSE_MS, giveUpAt - performance.now()));
  }
  return undefined;
}

/** A server that repeats itself is noted once, and a flood of them is not kept. */
export function noteRefusal(refusals: Refusals, reason: string): void {
  if (refusals.length < 5 && !refusals.includes(reason)) refusals.push(reason);
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
  readonly place: ClientInterface;
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

/** Tells the answers to a question from all others. */
export function newTransaction(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
}

/**
 * Puts a question until it is answered, as {@link exchange} does.
 * @param options.xid of the exchange that it continues; default: it begins one
 */
export function ask<T>(
  client: Client,
  question: Question,
  accept: (answer: Dhcp4Answer) => T | undefined,
  deadline: Deadline,
  { to, xid = newTransaction() }: { readonly to?: Destination | undefined; readonly xid?: number } = {},
): Promise<T | undefined> {
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
  send(client, question, newTransaction(), to);
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
  // Clients that share a hardware address differ in the id, which servers may repeat (RFC 6842).
  const named = message?.options.get(Code.clientId) ?? client.clientId;
  const isAnswer = message && Buffer.compare(named, client.clientId) === 0;
  return isAnswer ? { message, mac: packet.from } : undefined;
}

/** linux/if_ether.h */
const ETH_P_IP = 0x0800;

export interface ClientInterface {
  readonly netns: Netns;
  readonly link: Link;
}

/**
 * Runs a function with a client on the interface; its sockets are closed when the function is done. Where the interface has its address
 * already, the kernel would tell the server, which answers to that address, that the port is unreachable, so the port is occupied.
 */
export async function withClient<T>(
  place: ClientInterface,
  clientId: Uint8Array,
  work: (client: Client) => T | Promise<T>,
): Promise<T> {
  const { netns, link } = place;
  if (!link.mac)
    throw new Error(
      `Cannot use DHCP on "${link.name}": an interface of kind "${link.kind}" has no hardware address`,
    );
  const socket = inNetns(netns, () => openPacketSocket(link.index, ETH_P_IP, udpTo(CLIENT_PORT)));
  try {
    const freePort = inNetns(netns, occupyPort);
    try {
      return await work({ place, socket, mac: parseMac(link.mac), clientId, startedAt: performance.now() });
    } finally {
      freePort();
    }
  } finally {
    closePacketSocket(socket);
  }
}

function occupyPort(): () => void {
  const socket = openSocket('udp', 4);
  // If not, a program of the container has the port, which does as well.
  attempt(() => bindSocket(socket, 'udp', CLIENT_PORT));
  return () => closeSocket(socket);
}
