// What is known about the packet, and about its connection in one namespace?
import { type Ip, ipToBytes, renderIp, sameIp } from '../net/ip.ts';
import { certain, netNumber, uncertain, type Value } from './rules/value.ts';

/** linux/in.h: IPPROTO_TCP, IPPROTO_UDP */
export const PROTOCOLS = { tcp: 6, udp: 17 } as const;

/** Both ends, in one direction; the port that a client chooses is not known. */
export interface Tuple {
  readonly src: Ip;
  readonly dst: Ip;
  readonly sport: number | undefined;
  readonly dport: number | undefined;
}

/** The packet on its way: the first one of a connection, or the reply to it. */
export interface Packet extends Tuple {
  readonly protocol: 6 | 17;
  readonly isReply: boolean;
  /** Undefined if a rule set it to something unknown. */
  readonly mark: number | undefined;
}

/** The connection as the connection tracking of one namespace knows it. */
export interface Flow {
  readonly original: Tuple;
  /** The tuple that replies have. */
  reply: Tuple;
  dnat: boolean;
  snat: boolean;
  untracked: boolean;
  mark: number | undefined;
  labels: bigint;
}

/** A flow that begins with this packet. */
export function beginFlow({ src, dst, sport, dport }: Packet): Flow {
  return {
    original: { src, dst, sport, dport },
    reply: { src: dst, dst: src, sport: dport, dport: sport },
    ...{ dnat: false, snat: false, untracked: false, mark: 0, labels: 0n },
  };
}

/** The first reply, as its sender makes it. */
export function answerTo(packet: Packet): Packet {
  const { src, dst, sport, dport } = packet;
  return { ...packet, src: dst, dst: src, sport: dport, dport: sport, isReply: true, mark: 0 };
}

/** True if both are the same; unknown ports are equal. */
export function sameTuple(a: Tuple, b: Tuple): boolean {
  return sameIp(a.src, b.src) && sameIp(a.dst, b.dst) && a.sport === b.sport && a.dport === b.dport;
}

/** `10.22.0.5:80` */
export function renderEnd(ip: Ip, port: number | undefined): string {
  const address = ip.family === 6 && port !== undefined ? `[${renderIp(ip)}]` : renderIp(ip);
  return port === undefined ? address : `${address}:${port}`;
}

/** linux/if_ether.h, in network byte order */
const ETHERTYPES = { 4: 0x0800, 6: 0x86dd } as const;
export const etherType = (packet: Packet): Value => netNumber(ETHERTYPES[packet.src.family], 2);

/** One of the packet's headers. */
export function headerOf(packet: Packet, base: 'link' | 'network' | 'transport'): Value {
  if (base === 'link') return join([uncertain(12), etherType(packet)]);
  if (base === 'network') return packet.src.family === 4 ? ipv4Header(packet) : ipv6Header(packet);
  const ports = [netNumber(packet.sport, 2), netNumber(packet.dport, 2)];
  if (packet.protocol === PROTOCOLS.udp) return join([...ports, uncertain(4)]);
  // Sequence numbers, length of the header; then the flags, of which congestion control may set the upper two.
  const flags = { bytes: Uint8Array.of(packet.isReply ? 0x12 : 0x02), known: Uint8Array.of(0x3f) };
  return join([...ports, uncertain(9), flags, uncertain(6)]);
}

/** linux/ip.h, struct iphdr: the packet has no options and is no fragment. */
function ipv4Header({ src, dst, protocol }: Packet): Value {
  const fragment = { bytes: Uint8Array.of(0, 0), known: Uint8Array.of(0xbf, 0xff) };
  const start = [certain(Uint8Array.of(0x45)), uncertain(5), fragment, uncertain(1)];
  const addresses = [certain(ipToBytes(src)), certain(ipToBytes(dst))];
  return join([...start, certain(Uint8Array.of(protocol)), uncertain(2), ...addresses]);
}

/** linux/ipv6.h, struct ipv6hdr */
function ipv6Header({ src, dst, protocol }: Packet): Value {
  const start = [uncertain(6), certain(Uint8Array.of(protocol)), uncertain(1)];
  return join([...start, certain(ipToBytes(src)), certain(ipToBytes(dst))]);
}

function join(parts: readonly Value[]): Value {
  const whole = (take: (part: Value) => Uint8Array): Uint8Array =>
    Uint8Array.from(parts.flatMap(part => [...take(part)]));
  return { bytes: whole(({ bytes }) => bytes), known: whole(({ known }) => known) };
}
