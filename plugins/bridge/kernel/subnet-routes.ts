// Does the host still have the routes by which it reaches the containers?
import type { PlannedRoute } from '../../../src/attach/addressing.ts';
import { addRoutes, checkRoutes } from '../../../src/attach/routes.ts';
import { type Cidr, subnetOf } from '../../../src/net/cidr.ts';
import { RT_SCOPE_LINK } from '../../../src/netlink/rtnl/addr.ts';
import type { Link } from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { mend } from '../../../src/plugin/mend.ts';

/** linux/rtnetlink.h; and the metric of such routes, net/ipv6/addrconf.c IP6_RT_PRIO_ADDRCONF */
const RTPROT_KERNEL = 2;
const ADDRCONF_METRIC = 256;

/** @throws Error naming the first subnet without a route, which the kernel makes with the gateway's address */
export function checkSubnetRoutes(host: NetlinkSocket, target: Link, gateways: readonly Cidr[]): void {
  const subnets = wide(gateways).map(gateway => ({ dst: subnetOf(gateway) }));
  if (subnets.length > 0) checkRoutes(host, target, subnets);
}

/** Restores them as the kernel makes them. Those of a VRF are in its table, and the kernel's own business. */
export function ensureSubnetRoutes(host: NetlinkSocket, target: Link, gateways: readonly Cidr[]): void {
  if (target.master) return;
  for (const gateway of wide(gateways))
    mend(
      () => checkSubnetRoutes(host, target, [gateway]),
      () => addRoutes(host, target, [routeOf(gateway)]),
    );
}

function routeOf(gateway: Cidr): PlannedRoute {
  const route = { dst: subnetOf(gateway), protocol: RTPROT_KERNEL };
  return gateway.ip.family === 4
    ? { ...route, scope: RT_SCOPE_LINK, source: gateway.ip }
    : { ...route, priority: ADDRCONF_METRIC };
}

/** An address without a subnet has no such route. */
function wide(gateways: readonly Cidr[]): Cidr[] {
  return gateways.filter(({ ip, prefix }) => prefix < (ip.family === 4 ? 32 : 128));
}
