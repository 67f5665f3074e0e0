// How are DHCPv6 servers and the routers of the link asked, and what has a server granted and until when?

import * as z from 'zod/mini';
import { describeError } from '../../../src/cni/errors.ts';
import { parseMac } from '../../../src/net/interface.ts';
import { type Ip, ipFromBytes, ipToBytes, isLinkLocal, parseIp, renderIp } from '../../../src/net/ip.ts';
import {
  type Address,
  IFA_F_DADFAILED,
  IFA_F_TENTATIVE,
  listAddresses,
} from '../../../src/netlink/rtnl/addr.ts';
import { bootClock } from '../../../src/node/upkeep/note.ts';
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
import { searchOf } from '../codec.ts';
import {
  acquireBy,
  type ClientPolicy,
  type Deadline,
  type Exchange,
  exchange,
  extend,
  isTrusted,
  type LeaseQuestion,
  noteRefusal,
  type Refusals,
  type Response,
} from '../conversation.ts';
import { CommonLease, type Identity, MIN_DURATION_S, type OpenInterface } from '../upkeep.ts';
import {
  type Advertisement,
  type Association,
  addressesOf,
  Code,
  decodeAdvertisement,
  decodeMessage,
  encodeAssociation,
  encodeMessage,
  encodeSolicitation,
  findAssociation,
  findOption,
  type GrantedAddress,
  isGlobal,
  type Message,
  MessageType,
  type Options,
  ROUTER_ADVERTISEMENT,
  Status,
  statusIn,
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

interface Dhcp6Answer {
  readonly message: Message;
  /** DUID of the server. */
  readonly server: Uint8Array;
  /** Link-local address of the server or of the relay agent before it, in text. */
  readonly from: string;
}

/** A question: all but what the client adds itself. */
type Question = Pick<Message, 'type' | 'options'>;

/** Puts a question until it is answered, as {@link exchange} does. */
function ask<T>(
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
  if (!from || !isLinkLocal(from) || !message || !server?.length) return undefined;
  // RFC 9915, section 16: an answer names its client.
  const named = findOption(message.options, Code.clientId);
  if (named === undefined || Buffer.compare(named, client.duid) !== 0) return undefined;
  return { message, server, from: renderIp(from) };
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
async function awaitLinkLocal(place: OpenInterface, giveUpAt: number): Promise<Ip> {
  for (;;) {
    const own = linkLocalAddresses(place);
    const ready = own.find(isUsable);
    if (ready) return ready.cidr.ip;
    if (performance.now() >= giveUpAt) {
      const why = own.some(({ flags }) => flags & IFA_F_DADFAILED)
        ? 'another host on the network has it'
        : own.length
          ? 'the kernel is still probing for it'
          : 'the kernel has formed none; look at the sysctls "disable_ipv6" and "addr_gen_mode"';
      throw new Error(
        `Cannot use DHCPv6 on "${place.link.name}": it has no link-local address, since ${why}`,
      );
    }
    await Bun.sleep(POLL_MS);
  }
}

function linkLocalAddresses({ socket, link }: OpenInterface): Address[] {
  return listAddresses(socket, link.index).filter(({ cidr }) => isLinkLocal(cidr.ip));
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

export function watchRouters(place: OpenInterface): RouterWatch {
  const { netns, link } = place;
  const socket = inNetns(netns, () =>
    openPacketSocket(link.index, ETH_P_IPV6, icmpv6Of(ROUTER_ADVERTISEMENT)),
  );
  const known = new Map<string, Advertisement>();
  return {
    solicit() {
      const address = linkLocalAddresses(place).find(isUsable)?.cidr.ip;
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

/** A lease, as it is kept on disk. */
export const Lease = z.extend(CommonLease, {
  /** Seconds for which new connections use the address; absent for ever. */
  preferred: z.optional(z.number()),
});
export type Lease = z.output<typeof Lease>;

/** RFC 9915, section 7.7: without end. */
export const FOREVER = 0xffffffff;
/** RFC 9915, section 14.2: of the preferred lifetime, if the server leaves the times to the client. */
const T1 = 0.5;
const T2 = 0.8;

/** What an answer says about a client's address. */
interface Granted {
  readonly lease?: Lease;
  /** What the server says against it, in text. */
  readonly refusal?: string;
  /** The code of what it says, or that of success. */
  readonly code: number;
  /** Addresses that it ends. */
  readonly ended: readonly string[];
}

/**
 * What an answer grants or ends.
 * @param server its DUID
 * @param since seconds since the boot when it was asked for
 */
export function grantIn(answer: Dhcp6Answer, iaid: Uint8Array, since: number): Granted {
  const { options } = answer.message;
  const whole = statusIn(options);
  const own = findAssociation(options, iaid);
  const ended = (own?.addresses ?? []).filter(({ valid }) => valid === 0).map(({ ip }) => renderIp(ip));
  const found = own?.addresses.find(one => flawOf(one) === undefined);
  const [refused] = [whole, own?.status, ...(own?.addresses ?? []).map(one => one.status)].filter(
    one => one !== undefined && one.code !== Status.success,
  );
  if (found && own && whole.code === Status.success && own.status.code === Status.success)
    return { lease: leaseOf(answer, own, found, since), code: Status.success, ended };
  const [flaw = 'it granted no address'] = (own?.addresses ?? []).flatMap(one => flawOf(one) ?? []);
  return { refusal: refused?.text ?? flaw, code: refused?.code ?? Status.success, ended };
}

/** Why an address cannot be used, in text; undefined if it can. Lifetimes: RFC 9915, section 18.2.10.1. */
function flawOf({ ip, preferred, valid, status }: GrantedAddress): string | undefined {
  if (status.code !== Status.success) return status.text;
  if (!isGlobal(ip)) return `no host can have the address ${renderIp(ip)}`;
  if (valid === 0) return `it has ended ${renderIp(ip)}`;
  return preferred > valid
    ? `${renderIp(ip)} would be preferred for ${preferred} s, but valid for only ${valid} s`
    : undefined;
}

function leaseOf(
  answer: Dhcp6Answer,
  own: Association,
  { ip, preferred, valid }: GrantedAddress,
  since: number,
): Lease {
  const { options } = answer.message;
  return {
    address: renderIp(ip),
    ...resolversOf(options),
    server: Buffer.from(answer.server).toString('hex'),
    since,
    ...timesOf(own, preferred, valid),
  };
}

/** Names of servers and domains, in text. */
export interface Resolvers {
  readonly nameservers: string[];
  readonly search: string[];
}

function resolversOf(options: Options): Resolvers {
  return {
    nameservers: addressesOf(findOption(options, Code.nameservers)).map(renderIp),
    search: searchOf(findOption(options, Code.domainSearch)),
  };
}

function timesOf(own: Association, preferred: number, valid: number): Partial<Lease> {
  if (valid === FOREVER) return preferred === FOREVER ? {} : { preferred };
  const duration = Math.max(valid, MIN_DURATION_S);
  const base = Math.min(Math.max(preferred, MIN_DURATION_S), duration);
  const [t1, t2] = [own.renewAfter, own.rebindAfter];
  const isInOrder = t1 > 0 && t1 <= t2 && t2 < duration;
  return {
    duration,
    preferred: Math.min(preferred, duration),
    renewAfter: isInOrder ? t1 : Math.floor(base * T1),
    rebindAfter: isInOrder ? t2 : Math.floor(base * T2),
  };
}

/** Servers acknowledge what a client gives back; the client does not depend on it. */
const FAREWELL_MS = 1_000;
/** What is asked for besides addresses. */
const WISHES = Uint8Array.of(0, Code.nameservers, 0, Code.domainSearch);
const NOTHING = new Uint8Array(0);

/** How a client asks for IPv6 leases. */
export interface ClientPolicy6 extends ClientPolicy<Lease> {
  readonly rapidCommit: boolean;
}

export function acquire(
  client: Client,
  policy: ClientPolicy6,
  wanted: string | undefined,
  giveUpAt: number,
  refusals: Refusals,
): Promise<Lease | undefined> {
  const messages = {
    discover: (hint: string | undefined) =>
      ask(client, solicit(client, policy, hint), offerFor(client, policy, refusals), { at: giveUpAt }),
    request: async ({ lease, isBound }: Offer, deadline: number) =>
      isBound ? { lease } : request(client, lease, deadline, refusals),
    decline: (lease: Lease) => giveUp(client, MessageType.decline, lease),
  };
  return acquireBy(messages, policy, wanted, giveUpAt, refusals);
}

/** Asks the server of a lease to extend it (RFC 9915, section 18.2.4), or every server (18.2.5). */
export function askAbout(
  client: Client,
  policy: ClientPolicy6,
  question: LeaseQuestion,
  lease: Lease,
  giveUpAt: number,
): Promise<Response<Lease>> {
  const since = bootClock();
  const what =
    question === 'renew'
      ? about(client, MessageType.renew, lease, [serverOption(lease)])
      : about(client, MessageType.rebind, lease);
  return extend<Dhcp6Answer, Lease>(
    (accept, deadline) => ask(client, what, accept, deadline),
    answer => {
      if (answer.message.type !== MessageType.reply || !isTrusted(policy, answer.from)) return undefined;
      return { response: responseIn(client, lease, answer, since), isOwn: serverOf(answer) === lease.server };
    },
    giveUpAt,
  );
}

/**
 * Tells the server that the address is free (RFC 9915, section 18.2.7).
 * @returns whether it acknowledged that
 * @throws SystemError when the interface is gone or down
 */
export function release(client: Client, lease: Lease): Promise<boolean> {
  return giveUp(client, MessageType.release, lease);
}

/** Sections 18.2.7 and 18.2.8. @returns whether the server acknowledged that the address is given up */
async function giveUp(client: Client, type: number, lease: Lease): Promise<boolean> {
  const question = { type, options: [serverOption(lease), association(client, lease.address)] };
  const isReply = ({ message }: Dhcp6Answer) => message.type === MessageType.reply || undefined;
  return (await ask(client, question, isReply, { at: performance.now() + FAREWELL_MS })) ?? false;
}

interface Offer {
  readonly lease: Lease;
  /** The server has committed itself already. */
  readonly isBound: boolean;
}

function solicit(client: Client, { rapidCommit }: ClientPolicy6, hint: string | undefined): Question {
  const options: Options = [
    association(client, hint),
    [Code.optionRequest, WISHES],
    ...(rapidCommit ? [[Code.rapidCommit, NOTHING] as const] : []),
  ];
  return { type: MessageType.solicit, options };
}

function offerFor(
  { iaid }: Client,
  policy: ClientPolicy6,
  refusals: Refusals,
): (answer: Dhcp6Answer) => Offer | undefined {
  const since = bootClock();
  return answer => {
    const { type, options } = answer.message;
    const isBound = type === MessageType.reply;
    const isCommit = policy.rapidCommit && findOption(options, Code.rapidCommit) !== undefined;
    if (!isTrusted(policy, answer.from) || (isBound && !isCommit)) return undefined;
    const { lease, refusal } = grantIn(answer, iaid, since);
    if (lease) return { lease, isBound };
    noteRefusal(refusals, `${answer.from}: ${refusal}`);
    return undefined;
  };
}

function request(
  client: Client,
  offered: Lease,
  giveUpAt: number,
  refusals: Refusals,
): Promise<Response<Lease>> {
  const since = bootClock();
  const accept = (answer: Dhcp6Answer): Response<Lease> => {
    if (answer.message.type !== MessageType.reply || serverOf(answer) !== offered.server) return undefined;
    const { lease, refusal } = grantIn(answer, client.iaid, since);
    if (lease) return { lease };
    noteRefusal(refusals, `${answer.from}: ${refusal}`);
    return 'over';
  };
  const question = about(client, MessageType.request, offered, [serverOption(offered)]);
  return ask(client, question, accept, { at: giveUpAt });
}

/** An extension keeps the address; another one, which was not asked for, counts only if the server takes the first one back. */
function responseIn({ iaid }: Client, lease: Lease, answer: Dhcp6Answer, since: number): Response<Lease> {
  const { lease: granted, code, ended } = grantIn(answer, iaid, since);
  const isOver = ended.includes(lease.address) || code === Status.notOnLink;
  if (granted && (isOver || granted.address === lease.address)) return { lease: granted };
  if (isOver) return 'over';
  return code === Status.noBinding ? 'unknown' : undefined;
}

function about({ iaid }: Client, type: number, { address }: Lease, more: Options = []): Question {
  return { type, options: [...more, association({ iaid }, address), [Code.optionRequest, WISHES]] };
}

function association({ iaid }: Pick<Client, 'iaid'>, address: string | undefined): Options[number] {
  return [Code.iaNa, encodeAssociation(iaid, address ? [parseIp(address)] : [])];
}

function serverOption({ server }: Lease): Options[number] {
  return [Code.serverId, Uint8Array.from(Buffer.from(server, 'hex'))];
}

function serverOf({ server }: Dhcp6Answer): string {
  return Buffer.from(server).toString('hex');
}

/**
 * Asks for information only (RFC 9915, section 18.2.6).
 * @param giveUpAt in milliseconds of `performance.now()`
 * @returns undefined when no server answered in time
 */
export function askResolvers(
  client: Client,
  policy: Pick<ClientPolicy6, 'servers'>,
  giveUpAt: number,
): Promise<Resolvers | undefined> {
  const question = { type: MessageType.informationRequest, options: [[Code.optionRequest, WISHES]] as const };
  return ask(
    client,
    question,
    answer => {
      const { type, options } = answer.message;
      return type === MessageType.reply && isTrusted(policy, answer.from) ? resolversOf(options) : undefined;
    },
    { at: giveUpAt },
  );
}
