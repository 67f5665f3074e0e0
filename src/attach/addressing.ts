// Which addresses and routes does the IPAM plugin assign to a container's interface?
import type { ResultRoute } from '../cni/result.ts';
import { type Cidr, cidrContains, networkOf, parseCidr } from '../net/cidr.ts';
import { type Ip, parseIp } from '../net/ip.ts';
import { RT_SCOPE_LINK } from '../netlink/rtnl/addr.ts';
import type { Route } from '../netlink/rtnl/route.ts';

/** An address of the container's interface, and the gateway of its subnet. */
export interface PlannedIp {
  readonly cidr: Cidr;
  readonly gateway: Ip | undefined;
}

/** A route of the container; the outgoing interface is the attachment's own. */
export type PlannedRoute = Omit<Route, 'oif'>;

/** The layer 3 configuration of the container's interface. */
export interface ContainerAddressing {
  readonly ips: readonly PlannedIp[];
  readonly routes: readonly PlannedRoute[];
}

/**
 * Converts a route of a result to one for the kernel. A route without a gateway uses the family's default gateway, unless
 * its destination is inside one of the interface's own subnets, or its scope says that it is on the link.
 */
export function planRoute(route: ResultRoute, ips: readonly PlannedIp[]): PlannedRoute {
  const dst = parseCidr(route.dst);
  const onLink = ips.some(({ cidr }) => dst.prefix >= cidr.prefix && cidrContains(cidr, networkOf(dst)));
  const isDirect = onLink || (route.scope ?? 0) >= RT_SCOPE_LINK;
  const gateway = route.gw ? parseIp(route.gw) : isDirect ? undefined : firstGateway(ips, dst.ip.family);
  const { table, scope, priority, mtu, advmss } = route;
  return { dst, gateway, table, scope, priority, mtu, advmss };
}

/** The gateway for routes of the family that specify none. */
export function firstGateway(ips: readonly PlannedIp[], family: 4 | 6): Ip | undefined {
  return ips.find(({ cidr, gateway }) => gateway !== undefined && cidr.ip.family === family)?.gateway;
}
