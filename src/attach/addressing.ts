// Which addresses and routes does the IPAM plugin assign to a container's interface?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { ResultRoute } from '../cni/result.ts';
import {
  type Cidr,
  cidrContains,
  isSmallest,
  lastOf,
  networkOf,
  parseCidr,
  renderCidr,
} from '../net/cidr.ts';
import { IP_BITS, type Ip, parseIp, sameIp } from '../net/ip.ts';
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
 * Refuses what an IPAM plugin such as static hands out if it is asked for, and what no container can have beside its neighbours: their
 * gateway's address, and those of the subnet itself.
 * @param own addresses that the host has on the link
 * @throws CniError 7
 */
export function refuseUnusable(ips: readonly PlannedIp[], own: readonly Ip[] = []): void {
  for (const { cidr } of ips) {
    const problem = findUnusable(cidr, ips, own);
    if (problem === undefined) continue;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot give the container address ${renderCidr(cidr)}: it is ${problem}; request or configure another one`,
    );
  }
}

function findUnusable(cidr: Cidr, ips: readonly PlannedIp[], own: readonly Ip[]): string | undefined {
  const { ip } = cidr;
  if (ips.some(({ gateway }) => gateway && sameIp(gateway, ip))) return 'the address of the gateway';
  if (own.some(one => sameIp(one, ip))) return 'an address of the host on that link';
  if (isSmallest(cidr)) return undefined;
  if (sameIp(ip, networkOf(cidr))) return 'the address of the subnet itself';
  return ip.family === 4 && sameIp(ip, lastOf(cidr)) ? 'the broadcast address of its subnet' : undefined;
}

/**
 * Converts a route of a result to one for the kernel. A route without a gateway uses the family's default gateway, unless
 * its destination is inside one of the interface's own subnets, or its scope says that it is on the link.
 */
export function planRoute(route: ResultRoute, ips: readonly PlannedIp[]): PlannedRoute {
  const dst = parseCidr(route.dst);
  const onLink = ips.some(({ cidr }) => dst.prefix >= cidr.prefix && cidrContains(cidr, networkOf(dst)));
  const isDirect = onLink || (route.scope ?? 0) >= RT_SCOPE_LINK;
  const usual = isDirect ? undefined : firstGateway(ips, dst.ip.family);
  // The way to the gateway itself; result formats before 1.1.0 have no scopes.
  const isWay = usual && dst.prefix === IP_BITS[usual.family] && sameIp(usual, dst.ip);
  const gateway = route.gw ? parseIp(route.gw) : isWay ? undefined : usual;
  const { table, scope, priority, mtu, advmss } = route;
  return { dst, gateway, table, scope, priority, mtu, advmss };
}

/** The gateway for routes of the family that specify none. */
export function firstGateway(ips: readonly PlannedIp[], family: 4 | 6): Ip | undefined {
  return ips.find(({ cidr, gateway }) => gateway !== undefined && cidr.ip.family === family)?.gateway;
}
