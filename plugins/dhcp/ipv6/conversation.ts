// How are DHCPv6 servers and the routers of the link asked, and answers awaited?

import { describeError } from '../../../src/cni/errors.ts';
import { parseMac } from '../../../src/net/interface.ts';
import { type Ip, ipFromBytes, ipToBytes, parseIp, renderIp } from '../../../src/net/ip.ts';
import {
  type Address,
  IFA_F_DADFAILED,
  IFA_F_TENTATIVE,
  listAddresses,
} from '../../../src/netlink/rtnl/addr.ts';
import {
  bindSocket,
  closeSocket,
  type InetSocket,
  openSocket,
  POLLIN,
  receiveBytes,
  sendBytesTo,
  waitFor,
} from '../../../src/sys/inet-socket.ts';
import { inNetns } from '../../../src/sys/netns.ts';
import {
  closePacketSocket,
  icmpv6Of,
  openPacketSocket,
  type PacketSocket,
  receivePacket,
  sendPacket,
} from '../../../src/sys/packet-socket.ts';
import { type Deadline, type Exchange, exchange } from '../conversation.ts';
import type { Identity } from '../record.ts';
import type { OpenInterface } from '../upkeep.ts';
import {
  type Advertisement,
  Code,
  decodeAdvertisement,
  decodeMessage,
  encodeMessage,
  encodeSolicitation,
  findOption,
  isLinkLocal,
  type Message,
  type Options,
  ROUTER_ADVERTISEMENT,
  TRANSACTIONS,
} from './codec.ts';

/** RFC 9915, section 7.2 */
const CLIENT_PORT = 546;
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
export interface Dhcp6Answer {
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
  accept: (answer: Dhcp6Answer) => T | undefined,
  deadline: Deadline,
): Promise<T | undefined> {
  const transaction = (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) % TRANSACTIONS;
  const startedAt = performance.now();
  const room = new Uint8Array(ROOM_BYTES);
  const ends: Exchange<Dhcp6Answer> = {
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
function receive(client: Client, transaction: number, room: Uint8Array): Dhcp6Answer | undefined {
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

const POLL_MS = 20;

/**
 * Runs a function with a client on the interface, once that has a link-local address; the socket is closed when the function is done.
 * @param giveUpAt in milliseconds of `performance.now()`
 * @throws Error when there is no such address by then, or a program in the namespace has the port of DHCPv6 clients to itself
 */
export async function withClient<T>(
  place: OpenInterface,
  identity: Identity,
  giveUpAt: number,
  work: (client: Client) => T | Promise<T>,
): Promise<T> {
  const { netns, link } = place;
  const address = await awaitLinkLocal(place, giveUpAt);
  const socket = inNetns(netns, () => openClientSocket(address, link.index));
  try {
    return await work({ ...identity, socket, scope: link.index });
  } finally {
    closeSocket(socket);
  }
}

/** The kernel forms it when the interface comes up, and probes for it for a second or two. */
async function awaitLinkLocal({ socket, link }: OpenInterface, giveUpAt: number): Promise<Ip> {
  for (;;) {
    const own = linkLocalAddresses({ socket, link });
    const ready = own.find(isUsable);
    if (ready) return ready.cidr.ip;
    if (performance.now() >= giveUpAt) {
      const why = own.some(({ flags }) => flags & IFA_F_DADFAILED)
        ? 'another host on the network has it'
        : own.length
          ? 'the kernel is still probing for it'
          : 'the kernel has formed none; look at the sysctls "disable_ipv6" and "addr_gen_mode"';
      throw new Error(`Cannot use DHCPv6 on "${link.name}": it has no link-local address, since ${why}`);
    }
    await Bun.sleep(POLL_MS);
  }
}

/** The link-local address of the interface, if it has one that can be used already. */
function findLinkLocal(place: Pick<OpenInterface, 'socket' | 'link'>): Ip | undefined {
  return linkLocalAddresses(place).find(isUsable)?.cidr.ip;
}

function linkLocalAddresses({ socket, link }: Pick<OpenInterface, 'socket' | 'link'>): Address[] {
  return listAddresses(socket, link.index).filter(({ cidr }) => cidr.ip.family === 6 && isLinkLocal(cidr.ip));
}

function isUsable({ flags }: Address): boolean {
  return !(flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED));
}

function openClientSocket(address: Ip, scope: number): InetSocket {
  const socket = openSocket('udp', 6);
  try {
    bindSocket(socket, 'udp', CLIENT_PORT, { address: ipToBytes(address), scope });
    return socket;
  } catch (cause) {
    closeSocket(socket);
    throw new Error(
      `Cannot use DHCPv6: ${describeError(cause)}; a DHCPv6 client in the container may have the port`,
      { cause },
    );
  }
}

// The kernel asks for advertisements when the interface comes up, and acts on them. This listens beside it, for what a result says
// about gateway, prefix and resolvers.

/** linux/if_ether.h */
const ETH_P_IPV6 = 0x86dd;
/** RFC 2464, section 7: that of ff02::2. */
const ALL_ROUTERS = parseMac('33:33:00:00:00:02');
/** More routers than a link has; a forger could name any number. */
const MAX_ROUTERS = 8;
const MOST_FRAMES = 1_000;
/** RFC 4861, section 6.2.6: a router answers within half a second. */
const ANSWER_MS = 1_000;
const LOOK_AGAIN_MS = 25;

/** Listens to routers until it is closed. */
export interface RouterWatch {
  /**
   * Asks for advertisements, from the interface's link-local address if it can be used yet: a router then answers to that address,
   * also when it has just told everyone and may not do so again for three seconds (RFC 4861, section 6.2.6).
   * @throws SystemError when the interface is gone or down
   */
  solicit(): void;
  /** The latest advertisement of each router so far, in the order in which they were first heard. */
  heard(): readonly Advertisement[];
  close(): void;
}

/** Begins to listen. */
export function watchRouters(place: OpenInterface): RouterWatch {
  const { netns, link } = place;
  const socket = inNetns(netns, () =>
    openPacketSocket(link.index, ETH_P_IPV6, icmpv6Of(ROUTER_ADVERTISEMENT)),
  );
  const known = new Map<string, Advertisement>();
  return {
    solicit() {
      const address = findLinkLocal(place);
      const sender = address && link.mac ? { address, mac: parseMac(link.mac) } : undefined;
      sendPacket(socket, encodeSolicitation(sender), ALL_ROUTERS);
    },
    heard() {
      drain(socket, one => {
        const name = renderIp(one.router);
        if (known.has(name) || known.size < MAX_ROUTERS) known.set(name, one);
      });
      return [...known.values()];
    },
    close: () => closePacketSocket(socket),
  };
}

/**
 * Waits until a router has been heard, on an interface through which a host of the link has just been heard. What was asked before that
 * may be lost: the port at the other end did not forward yet, or the router itself had no address to answer from.
 * @param times to ask, if need be; a second passes after each
 * @returns none when there is no router
 */
export async function awaitRouters(routers: RouterWatch, times: number): Promise<readonly Advertisement[]> {
  for (let left = times, askAgainAt = 0; ; ) {
    const heard = routers.heard();
    if (heard.length > 0) return heard;
    if (performance.now() >= askAgainAt) {
      if (left-- === 0) return heard;
      routers.solicit();
      askAgainAt = performance.now() + ANSWER_MS;
    }
    await Bun.sleep(LOOK_AGAIN_MS);
  }
}

/** A link full of advertisements must not keep an ADD from ending. */
function drain(socket: PacketSocket, take: (one: Advertisement) => void): void {
  const room = new Uint8Array(ROOM_BYTES);
  for (let left = MOST_FRAMES; left > 0; left--) {
    const packet = receivePacket(socket, room);
    if (packet === undefined) return;
    const one = decodeAdvertisement(packet.bytes);
    if (one) take(one);
  }
}
