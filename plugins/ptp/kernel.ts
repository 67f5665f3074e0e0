// How are the pair, its addresses and its routes created in the kernel?

import type { PlannedRoute } from '../../src/attach/addressing.ts';
import { addressContainer, ignoreNeighbours } from '../../src/attach/container.ts';
import { enableHostIpv6 } from '../../src/attach/host-ipv6.ts';
import { resolveMtu } from '../../src/attach/mtu.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { addRoutes } from '../../src/attach/routes.ts';
import { createPair, type Pair } from '../../src/attach/veth.ts';
import type { Cidr } from '../../src/net/cidr.ts';
import { addAddress } from '../../src/netlink/rtnl/addr.ts';
import { type Link, removeLink } from '../../src/netlink/rtnl/link.ts';
import { prependRoute, removeRoute, replaceRoute } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Call } from '../../src/plugin/define.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import type { PtpConf } from './config.ts';
import type { PtpPlan } from './plan.ts';

/** Creates the pair and configures both ends according to the plan. Registers its own undo steps. */
export function connect(call: Call<PtpConf>, plan: PtpPlan): Pair {
  const { host, container, containerNetns, conf } = call;
  const mtu = resolveMtu(host, conf.mtu);
  const pair = createPair(host, container, containerNetns, { owner: attachmentOf(call), mtu });
  // Everything that follows belongs to one of the ends, and is deleted with it.
  call.onFailure(`delete device "${pair.host.name}"`, () => removeLink(host, pair.host.index));
  trySysctl(`net/ipv6/conf/${pair.host.name}/accept_ra`, '0');
  // During duplicate address detection of its link-local address (one second) the host could not resolve the container's address.
  trySysctl(`net/ipv6/conf/${pair.host.name}/accept_dad`, '0');
  ignoreNeighbours(call, pair.container.name);
  configureContainerEnd(call, pair, plan);
  configureHostEnd(call, pair.host, plan);
  return pair;
}

/**
 * The container's neighbours are not on its link: the kernel's on-link routes to its subnets are removed, and all of that traffic
 * uses the gateway.
 */
function configureContainerEnd(call: Call, { container: link }: Pair, plan: PtpPlan): void {
  const { container } = call;
  addressContainer(
    call,
    link,
    plan.ips.map(({ cidr }) => cidr),
    false,
  );
  addRoutes(container, link, plan.toGateways);
  // Before the subnets' on-link routes are removed: a route may name another gateway in a subnet.
  addRoutes(container, link, plan.routes);
  for (const route of plan.notOnLink) removeRoute(container, { ...route, oif: link.index });
  addRoutes(container, link, plan.toSubnets);
}

function configureHostEnd({ host }: Call, link: Link, plan: PtpPlan): void {
  if (plan.hostAddresses.some(({ ip }) => ip.family === 6)) enableHostIpv6(link.name);
  for (const cidr of plan.hostAddresses) addHostAddress(host, link, cidr);
  for (const route of plan.hostRoutes) addHostRoute(host, link, route);
}

/** Gives the host end an address. No other device on the link could have the gateway's address, so duplicates are not checked. */
export function addHostAddress(host: NetlinkSocket, link: Link, cidr: Cidr): void {
  addAddress(host, link.index, cidr, { nodad: true });
}

/**
 * Routes the container's address to the host end. Of two routes to one address, IPv4 uses the newer one, but IPv6 the older,
 * which leads to the previous holder and is replaced.
 */
export function addHostRoute(host: NetlinkSocket, link: Link, route: PlannedRoute): void {
  const own = { ...route, oif: link.index };
  if (route.dst.ip.family === 4) prependRoute(host, own);
  else replaceRoute(host, own);
}
