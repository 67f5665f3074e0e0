// Does another host of the link have an IPv4 address already?
//
// Where an interface shares its link with hosts that this node does not manage, IPAM cannot know their addresses. RFC 5227 asks before an
// address is used: a probe claims nothing, so no host changes its cache, and the holder of the address answers. Its waits of up to nine
// seconds are for links of 1998. Hosts of today answer within milliseconds, which is why other systems have settled for 200 ms. What
// costs more than that here is a container that waits: so the gateways are asked, too. Once one has answered, packets pass in both
// directions, and the link is as fast as that answer was; a silent link gets the whole time, since it may only be slow.

import { tryAgainLater } from '../cni/errors.ts';
import { parseMac, renderMac } from '../net/interface.ts';
import { type Ip, renderIp, sameIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { findLink, type Link, setLink } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';
import { Errno } from '../sys/errno.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import {
  BROADCAST,
  closePacketSocket,
  openPacketSocket,
  receivePacket,
  sendPacket,
} from '../sys/packet-socket.ts';
import type { PlannedIp } from './addressing.ts';
import { awaitTraffic, type Stage } from './ready.ts';

/** linux/if_ether.h: ETH_P_ARP */
export const ETH_P_ARP = 0x0806;

/** RFC 826: hardware type Ethernet, protocol IPv4, and the lengths of their addresses. */
const HEADER = [0x00, 0x01, 0x08, 0x00, 6, 4];
const REQUEST = 1;
const MESSAGE_BYTES = 28;

interface ArpMessage {
  readonly senderMac: string;
  /** 0.0.0.0 in a probe. */
  readonly sender: Ip;
  readonly target: Ip;
}

/** A probe (RFC 5227, 1.1): asks for an address without claiming one. */
export function encodeArpProbe(mac: string, ip: Ip): Uint8Array {
  const bytes = new Uint8Array(MESSAGE_BYTES);
  bytes.set([...HEADER, 0, REQUEST]);
  bytes.set(parseMac(mac), 8);
  new DataView(bytes.buffer).setUint32(24, Number(ip.value), false);
  return bytes;
}

/** @returns undefined for anything but ARP for IPv4 over Ethernet */
export function decodeArp(bytes: Uint8Array): ArpMessage | undefined {
  if (bytes.length < MESSAGE_BYTES || HEADER.some((byte, i) => bytes[i] !== byte)) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const ipAt = (at: number): Ip => ({ family: 4, value: BigInt(view.getUint32(at, false)) });
  return { senderMac: renderMac(bytes.subarray(8, 14)), sender: ipAt(14), target: ipAt(24) };
}

/** When the probes are sent, and how long a link without answers is listened to. */
const PROBES_AT_MS = [0, 20, 80];
const SILENT_MS = 200;
/** How long a link is listened to that has answered for a gateway, and how much slower than that the holder may be. */
const ANSWERED_MS = 40;
const SLOWER = 4;
const POLL_MS = 2;
/** Frames read at a time: a link full of ARP must not keep an ADD from ending. */
const MOST_FRAMES = 1_000;
const FRAME_BYTES = 2048;

/** Refusals of a packet socket: for want of CAP_NET_RAW, and by RestrictAddressFamilies= or a kernel without packet sockets. */
const UNABLE: readonly unknown[] = [Errno.EPERM, Errno.EAFNOSUPPORT];

/**
 * Brings the container's interface up, and probes for the IPv4 addresses once packets flow. An interface without addresses announces
 * nothing, so no host learns of it. A process that cannot probe warns instead.
 * @param stages the interfaces that must work for packets to pass, that one included
 * @throws CniError 11 as {@link refuseTakenAddresses}
 */
export async function probeAddresses(
  call: Pick<Call, 'container' | 'containerNetns' | 'log'>,
  link: Link,
  stages: readonly Stage[],
  ips: readonly PlannedIp[],
): Promise<void> {
  setLink(call.container, link.index, { up: true });
  await awaitTraffic(call.log, stages);
  const wanted = ips.map(({ cidr }) => cidr.ip);
  const gateways = ips.flatMap(({ gateway }) => gateway ?? []);
  try {
    await refuseTakenAddresses(call, link, wanted, gateways);
  } catch (thrown) {
    if (!UNABLE.includes((thrown as { readonly errno?: number }).errno)) throw thrown;
    const addresses = wanted.map(renderIp).join(', ');
    call.log.warn(`Cannot ask whether other hosts have ${addresses}: ${(thrown as Error).message}`);
  }
}

/**
 * Probes for the IPv4 addresses on the container's interface, which must be up, and must not have them yet. Takes 40 ms if a gateway
 * answers, else 200.
 * @throws CniError 11 naming the address and the hardware address of its holder: the next attempt gets another address
 */
export async function refuseTakenAddresses(
  call: Pick<Call, 'containerNetns'>,
  link: Link,
  ips: readonly Ip[],
  gateways: readonly Ip[],
): Promise<void> {
  const wanted = ips.filter(({ family }) => family === 4);
  const others = gateways.filter(({ family }) => family === 4).filter(one => !includesIp(wanted, one));
  const { mac, name } = link;
  if (wanted.length === 0 || mac === undefined) return;
  const { isQuiet } = await import('./quiet.ts');
  if (isQuiet(call.containerNetns)) return;
  const question = { wanted, gateways: others, name, own: mac };
  let listenMs = SILENT_MS;
  await probe(call, { index: link.index, mac }, [...wanted, ...others], (receive, elapsed) => {
    const hasAnswered = readAnswers(receive, question);
    if (hasAnswered && listenMs === SILENT_MS)
      listenMs = Math.min(SILENT_MS, Math.max(ANSWERED_MS, SLOWER * elapsed));
    return elapsed >= listenMs || undefined;
  });
}

/** Whether another host answers for one of the IPv4 addresses that interfaces of the container have. @param ifnames of those that are quiet */
export async function isAnsweredElsewhere(
  { container, containerNetns }: Pick<Call, 'container' | 'containerNetns'>,
  ifnames: readonly string[],
): Promise<boolean> {
  const links = ifnames.flatMap(name => findLink(container, name) ?? []);
  const answers = await Promise.all(
    links.map(({ index, mac }) => {
      const present = listAddresses(container, index).map(({ cidr }) => cidr.ip);
      const own = present.filter(({ family }) => family === 4);
      if (own.length === 0 || mac === undefined) return false;
      return probe({ containerNetns }, { index, mac }, own, (receive, elapsed) => {
        // Not who probes for it, as this container does.
        for (const { sender } of messagesIn(receive)) if (includesIp(own, sender)) return true;
        return elapsed >= SILENT_MS ? false : undefined;
      });
    }),
  );
  return answers.includes(true);
}

/**
 * The hardware address of the host of the link that has an IPv4 address, as that host says it now.
 * @returns undefined if no host answers within 200 ms
 */
export function findHolderMac(
  { netns, link }: { readonly netns: Netns; readonly link: Link },
  ip: Ip,
): Promise<string | undefined> {
  const { index, mac } = link;
  if (mac === undefined) return Promise.resolve(undefined);
  return probe({ containerNetns: netns }, { index, mac }, [ip], (receive, elapsed) => {
    for (const { sender, senderMac } of messagesIn(receive))
      if (sameIp(sender, ip) && senderMac !== mac) return { senderMac };
    return elapsed >= SILENT_MS ? { senderMac: undefined } : undefined;
  }).then(({ senderMac }) => senderMac);
}

type Receive = () => Uint8Array | undefined;

/**
 * Probes for addresses on an interface of the container.
 * @param look reads what has arrived after so many milliseconds; what it returns, unless undefined, is the answer
 */
async function probe<T>(
  { containerNetns }: Pick<Call, 'containerNetns'>,
  { index, mac }: { readonly index: number; readonly mac: string },
  ips: readonly Ip[],
  look: (receive: Receive, elapsed: number) => T | undefined,
): Promise<T> {
  const socket = inNetns(containerNetns, () => openPacketSocket(index, ETH_P_ARP));
  const room = new Uint8Array(FRAME_BYTES);
  const receive = () => receivePacket(socket, room)?.bytes;
  const started = performance.now();
  try {
    for (let sent = 0; ; await Bun.sleep(POLL_MS)) {
      const elapsed = performance.now() - started;
      const answer = look(receive, elapsed);
      if (answer !== undefined) return answer;
      if (elapsed < (PROBES_AT_MS[sent] ?? Number.POSITIVE_INFINITY)) continue;
      for (const ip of ips) sendPacket(socket, encodeArpProbe(mac, ip), BROADCAST);
      sent++;
    }
  } finally {
    closePacketSocket(socket);
  }
}

function* messagesIn(receive: Receive): Generator<ArpMessage> {
  for (let left = MOST_FRAMES; left > 0; left--) {
    const frame = receive();
    if (frame === undefined) return;
    const message = decodeArp(frame);
    if (message !== undefined) yield message;
  }
}

/** What is asked: who has the addresses that are wanted, and whether a gateway is heard. */
interface Question {
  readonly wanted: readonly Ip[];
  readonly gateways: readonly Ip[];
  readonly name: string;
  /** The hardware address that asks. */
  readonly own: string;
}

/**
 * Reads what has arrived.
 * @returns whether one of the gateways was heard
 * @throws CniError 11 when another host answers for one of the addresses
 */
export function readAnswers(receive: Receive, { wanted, gateways, name, own }: Question): boolean {
  let hasAnswered = false;
  for (const message of messagesIn(receive)) {
    const ip = findTaken(message, wanted, own);
    if (ip !== undefined) {
      throw tryAgainLater(
        `Cannot use ${renderIp(ip)} on "${name}": the host with hardware address ${message.senderMac} has it`,
        { details: 'exclude the address from "ipam", or remove it from that host' },
      );
    }
    hasAnswered ||= message.senderMac !== own && includesIp(gateways, message.sender);
  }
  return hasAnswered;
}

/** The holder answers or announces; a host that probes for the address at this moment will use it (RFC 5227, 2.1.1). */
export function findTaken(
  { senderMac, sender, target }: ArpMessage,
  wanted: readonly Ip[],
  own: string,
): Ip | undefined {
  if (senderMac === own) return undefined;
  return wanted.find(ip => sameIp(ip, sender) || (sender.value === 0n && sameIp(ip, target)));
}

function includesIp(ips: readonly Ip[], ip: Ip): boolean {
  return ips.some(one => sameIp(one, ip));
}
