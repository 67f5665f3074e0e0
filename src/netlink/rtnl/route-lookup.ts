// Where would the kernel send a packet to an address?
import { IP_BITS, type Ip, renderIp } from '../../net/ip.ts';
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
