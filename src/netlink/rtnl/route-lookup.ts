// Where would the kernel send a packet to an address?
import { IP_BITS, type Ip, renderIp } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { NetlinkError } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { addressFamily } from './family.ts';
import { routeMessage } from './route.ts';

/** linux/rtnetlink.h */
const RTM_GETROUTE = 26;
const RTN_LOCAL = 2;
/** asm-generic/errno.h: no route, and routes that refuse. */
const UNREACHABLE = [3, 101, 113, 13, 22];

/** The result of a route lookup for an address. */
export interface RouteLookup {
  /** True when it is an address of this host. */
  readonly local: boolean;
  /** Index of the outgoing interface. */
  readonly oif: number;
}

/** The route to an address, or undefined when there is none. Same as: `ip route get <address>` */
export function findWay(socket: NetlinkSocket, address: Ip): RouteLookup | undefined {
  const op = `find the route to ${renderIp(address)}`;
  const body = routeMessage.encode(
    { family: addressFamily(address), dstLength: IP_BITS[address.family] },
    { dst: address },
  );
  const reply = socket.find({ op, type: RTM_GETROUTE, body, isQuestion: true }, UNREACHABLE);
  if (reply === undefined) return undefined;
  const { header, attrs } = routeMessage.decode(reply);
  return { local: header.type === RTN_LOCAL, oif: attrs.oif ?? 0 };
}

/** A packet whose route is looked up. */
export interface RoutedPacket {
  readonly destination: Ip;
  readonly source?: Ip | undefined;
  /** Index of the interface on which it arrived; absent for packets of this host. */
  readonly iif?: number | undefined;
  readonly mark: number;
}

/** linux/rtnetlink.h, RTN_*: what a route does with packets. */
const ROUTE_TYPES: Readonly<Record<number, PacketRoute['type']>> = {
  1: 'unicast',
  2: 'local',
  3: 'broadcast',
};

/** Where a packet goes next. */
export interface PacketRoute {
  readonly type: 'unicast' | 'local' | 'broadcast' | 'refused';
  /** Index of the outgoing interface. */
  readonly oif: number;
  readonly gateway?: Ip | undefined;
  /** The source address that a packet of this host would get. */
  readonly source?: Ip | undefined;
}

/**
 * The route of one packet, by the kernel's own lookup: policy rules, reverse path filter and addresses that may not appear on
 * an interface included. Returns the errno when there is no route (113, 101), the reverse path filter drops it (18), or an
 * address is not allowed there (22).
 * Same as: `ip route get <destination> [from <source>] [iif <dev>] mark <mark>`
 */
export function routePacket(socket: NetlinkSocket, packet: RoutedPacket): PacketRoute | number {
  const { destination: dst, source: src, iif, mark } = packet;
  const bits = IP_BITS[dst.family];
  const body = routeMessage.encode(
    { family: addressFamily(dst), dstLength: bits, srcLength: src ? bits : 0 },
    { dst, ...(src ? { src } : {}), ...(iif === undefined ? {} : { iif }), ...(mark ? { mark } : {}) },
  );
  const op = `find the route to ${renderIp(dst)}`;
  const [answer] = socket.attemptAll([{ op, type: RTM_GETROUTE, body, isQuestion: true }]);
  if (answer instanceof NetlinkError) return answer.errno;
  if (answer?.[0] === undefined) return Errno.ENOENT;
  const { header, attrs } = routeMessage.decode(answer[0]);
  return {
    type: ROUTE_TYPES[header.type] ?? 'refused',
    oif: attrs.oif ?? 0,
    gateway: attrs.gateway,
    source: attrs.prefsrc,
  };
}
