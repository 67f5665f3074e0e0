// What does a rule see of a packet that a container depends on?
import { findIp, ipToBytes } from '../../../net/ip.ts';
import { hostU32, META } from '../../../netlink/nft/expr.ts';
import { NFPROTO } from '../../../netlink/nft/message.ts';

/** A byte; undefined if it is not known. */
export type Byte = number | undefined;

/** The first packet of a connection, the first reply, or what follows. */
export interface Packet {
  readonly family: 4 | 6;
  /** Device on which it arrives, and through which it leaves; undefined if that is not known or not decided yet. */
  readonly iif: string | undefined;
  readonly oif: string | undefined;
  readonly protocol: number;
  readonly source: string | undefined;
  readonly destination: string | undefined;
  /** Whether the destination is an address of this host. */
  readonly isLocal: boolean;
  /** Whether the source is one; by default it is not. */
  readonly isFromLocal?: boolean | undefined;
  readonly sourcePort: number;
  readonly port: number;
  readonly isReply: boolean;
  /** Whether it comes after the first reply, in the direction of the first packet. */
  readonly isEstablished?: boolean | undefined;
  /** False before connection tracking has seen it. */
  readonly isTracked?: boolean | undefined;
  /** Whether its destination has been translated. */
  readonly isTranslated: boolean;
  /** The labels of its connection; by default they are not known. */
  readonly labels?: readonly Byte[] | undefined;
  /** What rules made its mark; by default they made none, and few processes give one to what they send. */
  readonly mark?: readonly Byte[] | undefined;
}

const NO_MARK: readonly Byte[] = [0, 0, 0, 0];

/** In the order of bytes of this machine. */
export function markOf({ mark = NO_MARK }: Packet): readonly Byte[] {
  return mark;
}

/** What is known of bytes that are either these or those. */
export function eitherOf(these: readonly Byte[], those: readonly Byte[]): readonly Byte[] {
  return these.map((byte, i) => (byte === those[i] ? byte : undefined));
}

/** IPPROTO_* in netinet/in.h */
export const PROTOCOLS: Readonly<Record<string, number>> = {
  tcp: 6,
  udp: 17,
  sctp: 132,
  icmp: 1,
  icmpv6: 58,
};

/** linux/if_ether.h, in network byte order */
const ETHERTYPE = { 4: [0x08, 0x00], 6: [0x86, 0xdd] } as const;
const IFNAMSIZ = 16;

export function metaBytes(packet: Packet, key: number): readonly Byte[] {
  const { family, iif, oif, protocol } = packet;
  if (key === META.iifname) return nameBytes(iif);
  if (key === META.oifname) return nameBytes(oif);
  if (key === META.l4proto) return [protocol, 0, 0, 0];
  if (key === META.nfproto) return [NFPROTO[family === 4 ? 'ip' : 'ip6'], 0, 0, 0];
  if (key === META.protocol) return [...ETHERTYPE[family], 0, 0];
  return key === META.mark ? markOf(packet) : unknown(16);
}

/** linux/netfilter/nf_tables.h, enum nft_payload_bases */
const HEADERS: readonly ((packet: Packet) => readonly Byte[])[] = [
  // Of Ethernet; the hardware addresses are not known.
  ({ family }) => [...unknown(12), ...ETHERTYPE[family]],
  networkHeader,
  transportHeader,
];

export function payloadBytes(packet: Packet, base: number, offset: number, length: number): readonly Byte[] {
  const header = HEADERS[base]?.(packet) ?? [];
  return Array.from({ length }, (_, i) => header[offset + i]);
}

/** linux/netfilter/nf_conntrack_common.h: NF_CT_STATE_BIT() */
const [STATE_INVALID, STATE_ESTABLISHED, STATE_NEW] = [1, 2, 8];
/** The same file: IPS_DST_NAT with IPS_DST_NAT_DONE */
const TRANSLATED = [0x20, 0x01, 0, 0];

/** No rule has labelled a new connection; the kernel has 128 labels. */
export const NO_LABELS: readonly number[] = Array.from({ length: 16 }, () => 0);

/** linux/netfilter/nf_tables.h, enum nft_ct_keys */
export const CT = { state: 0, direction: 1, status: 2, labels: 13 } as const;

export function connectionBytes(packet: Packet, key: number): readonly Byte[] {
  const { isTranslated, isReply, isEstablished, isTracked, labels } = packet;
  if (key === CT.state && isTracked === false) return [...hostU32(STATE_INVALID)];
  if (key === CT.state) return [...hostU32(isReply || isEstablished ? STATE_ESTABLISHED : STATE_NEW)];
  if (key === CT.labels && labels !== undefined) return labels;
  if (key === CT.direction) return [isReply ? 1 : 0, 0, 0, 0];
  // By the time of a reply, more has happened to the connection.
  if (key === CT.status && !isReply && !isEstablished)
    return isTranslated ? TRANSLATED : [0, undefined, 0, 0];
  return unknown(16);
}

/** linux/netfilter/nf_tables.h, enum nft_fib_result and nft_fib_flags */
const ADDRESS_TYPE = 3;
const [BY_SOURCE, BY_DESTINATION, IS_PRESENT] = [1, 2, 32];
/** linux/rtnetlink.h */
const [RTN_UNICAST, RTN_LOCAL] = [1, 2];

/** The bytes that `fib` loads. Addresses of containers have routes, so a route is found, of a device that is not known. */
export function routeBytes(
  { isLocal, isFromLocal = false }: Packet,
  flags: number,
  result: number,
): readonly Byte[] {
  if (result === ADDRESS_TYPE) {
    const isOfHost = (flags & BY_DESTINATION) !== 0 ? isLocal : isFromLocal;
    return [...hostU32(isOfHost ? RTN_LOCAL : RTN_UNICAST)];
  }
  if ((flags & BY_SOURCE) === 0) return unknown(16);
  return (flags & IS_PRESENT) !== 0 ? [1, 0, 0, 0] : SOME_DEVICE;
}

/** The index of no device, for a comparison with "none". */
const SOME_DEVICE = [0xff, 0xff, 0xff, 0x7f];

export function unknown(length: number): readonly Byte[] {
  return Array.from({ length }, () => undefined);
}

function nameBytes(name: string | undefined): readonly Byte[] {
  if (name === undefined) return unknown(IFNAMSIZ);
  const bytes = new TextEncoder().encode(name);
  return Array.from({ length: IFNAMSIZ }, (_, i) => bytes[i] ?? 0);
}

/** The protocol and the addresses; other fields are not known. */
function networkHeader({ family, protocol, source, destination }: Packet): readonly Byte[] {
  return family === 4
    ? [...unknown(9), protocol, ...unknown(2), ...addressBytes(source, 4), ...addressBytes(destination, 4)]
    : [...unknown(6), protocol, undefined, ...addressBytes(source, 16), ...addressBytes(destination, 16)];
}

/** Types of an echo request and its reply (RFC 792, RFC 4443). */
const ECHO: Readonly<Record<number, readonly [request: number, reply: number]>> = {
  1: [8, 0],
  58: [128, 129],
};

function transportHeader({ protocol, sourcePort, port, isReply }: Packet): readonly Byte[] {
  const echo = ECHO[protocol];
  if (echo) return [echo[isReply ? 1 : 0], 0];
  return [sourcePort, port].flatMap(one => [one >> 8, one & 0xff]);
}

function addressBytes(text: string | undefined, length: number): readonly Byte[] {
  const ip = text === undefined ? undefined : findIp(text);
  return ip === undefined ? unknown(length) : [...ipToBytes(ip)];
}
