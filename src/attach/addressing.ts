// Which addresses and routes does a container's interface get, according to its IPAM plugin?
import type { ResultRoute } from '../cni/result.ts';
import { type Cidr, cidrContains, networkOf, parseCidr } from '../net/cidr.ts';
import { type Ip, parseIp } from '../net/ip.ts';
import type { Route } from '../netlink/rtnl/route.ts';

/** An address of the container's interface, and the gateway of its subnet. */
export interface PlannedIp {
  readonly cidr: Cidr;
  readonly gateway: Ip | undefined;
}

/** A route of the container; the outgoing interface is its own. */
export type PlannedRoute = Omit<Route, 'oif'>;

/** What the container's interface is to look like on layer 3. */
export interface ContainerAddressing {
  readonly ips: readonly PlannedIp[];
  readonly routes: readonly PlannedRoute[];
}

/**
 * A route of a result as the kernel gets it. Without a gateway of its own it goes through the family's, unless its
 * destination lies inside an own subnet.
 */
export function planRoute(route: ResultRoute, ips: readonly PlannedIp[]): PlannedRoute {
  const dst = parseCidr(route.dst);
  const onLink = ips.some(({ cidr }) => dst.prefix >= cidr.prefix && cidrContains(cidr, networkOf(dst)));
  const gateway = route.gw ? parseIp(route.gw) : onLink ? undefined : firstGateway(ips, dst.ip.family);
  const { table, scope, priority, mtu, advmss } = route;
  return { dst, gateway, table, scope, priority, mtu, advmss };
}

/** The gateway for routes of the family that name none. */
export function firstGateway(ips: readonly PlannedIp[], family: 4 | 6): Ip | undefined {
  return ips.find(({ cidr, gateway }) => gateway !== undefined && cidr.ip.family === family)?.gateway;
}
