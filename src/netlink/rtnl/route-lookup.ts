// Where would the kernel send a packet?

import { IP_BITS, type Ip, renderIp } from '../../net/ip.ts';
import type { Request } from '../codec/message.ts';
import { NetlinkError } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { addressFamily } from './family.ts';
import { routeMessage } from './route.ts';

/** linux/rtnetlink.h */
const RTM_GETROUTE = 26;
const RTN_LOCAL = 2;
/** asm-generic/errno.h: no route, routes that refuse, and packets that may not arrive. */
const UNREACHABLE = [3, 18, 101, 113, 13, 22];

/** A packet whose route is asked for. */
export interface RouteQuestion {
  readonly destination: Ip;
  readonly source?: Ip | undefined;
  /** Index of the device on which it arrives; by default it is sent by this host. */
  readonly iif?: number | undefined;
}

/** The result of a route lookup for an address. */
export interface RouteLookup {
  /** True when it is an address of this host. */
  readonly local: boolean;
  /** Index of the outgoing interface. */
  readonly oif: number;
  readonly gateway?: Ip | undefined;
  /** The source of packets that have none yet. */
  readonly source?: Ip | undefined;
}

/** The route to an address, or undefined when there is none. Same as: `ip route get <address>` */
export function findWay(socket: NetlinkSocket, address: Ip): RouteLookup | undefined {
  const reply = socket.find(questionFor({ destination: address }), UNREACHABLE);
  return reply && decodeLookup(reply);
}

/**
 * Asks for the route of a packet; the kernel's error number if it has none. IPv4 packets that arrive are refused without forwarding, and by
 * reverse path filtering, too.
 * Same as: `ip route get <destination> from <source> iif <device>`
 */
export function lookUpRoute(socket: NetlinkSocket, question: RouteQuestion): RouteLookup | number {
  try {
    const reply = socket.find(questionFor(question), []);
    return reply === undefined ? 0 : decodeLookup(reply);
  } catch (error) {
    if (error instanceof NetlinkError && UNREACHABLE.includes(error.errno)) return error.errno;
    throw error;
  }
}

function questionFor({ destination, source, iif }: RouteQuestion): Request {
  const op = `find the route to ${renderIp(destination)}`;
  const bits = IP_BITS[destination.family];
  const body = routeMessage.encode(
    { family: addressFamily(destination), dstLength: bits, srcLength: source ? bits : 0 },
    {
      dst: destination,
      ...(source === undefined ? {} : { src: source }),
      ...(iif === undefined ? {} : { iif }),
    },
  );
  return { op, type: RTM_GETROUTE, body, isQuestion: true };
}

function decodeLookup(reply: Uint8Array): RouteLookup {
  const { header, attrs } = routeMessage.decode(reply);
  const { oif = 0, gateway, prefsrc } = attrs;
  return { local: header.type === RTN_LOCAL, oif, gateway, source: prefsrc };
}
