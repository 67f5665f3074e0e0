// How are the pair, its addresses and its routes created in the kernel?

import type { PlannedRoute } from '../../src/attach/addressing.ts';
import {
  addRoutes,
  addressContainer,
  checkRoutes,
  ignoreNeighbours,
  putRoutesRight,
  repairAddresses,
  repairInterface,
} from '../../src/attach/container.ts';
import { checkAddresses, checkContainerEnd, checkHostEnd, raise } from '../../src/attach/device.ts';
import { checkForwarding, enableHostIpv6, ensureForwarding } from '../../src/attach/forwarding.ts';
import { resolveMtu } from '../../src/attach/mac-and-mtu.ts';
import { backendOf, withSources } from '../../src/attach/masquerade.ts';
import { checkMasquerading, startMasquerading } from '../../src/attach/masquerading.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { createPair, type Pair } from '../../src/attach/veth.ts';
import type { Result } from '../../src/cni/result.ts';
import { type Cidr, renderCidr, sameIp } from '../../src/net/ip.ts';
import { addAddress } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link, removeLink } from '../../src/netlink/rtnl/link.ts';
import { listRoutes, prependRoute, removeRoute, replaceRoute } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Call } from '../../src/plugin/define.ts';
import { confirm, mend, tryAll } from '../../src/plugin/steps.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import { type PtpConf, validatePtpConf } from './config.ts';
import { type PtpPlan, planFromResult } from './plan.ts';

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
function addHostAddress(host: NetlinkSocket, link: Link, cidr: Cidr): void {
  addAddress(host, link.index, cidr, { nodad: true });
}

/**
 * Routes the container's address to the host end. Of two routes to one address, IPv4 uses the newer one, but IPv6 the older,
 * which leads to the previous holder and is replaced.
 */
function addHostRoute(host: NetlinkSocket, link: Link, route: PlannedRoute): void {
  const own = { ...route, oif: link.index };
  if (route.dst.ip.family === 4) prependRoute(host, own);
  else replaceRoute(host, own);
}

/**
 * Compares both ends, their addresses and routes, and forwarding with the result of ADD. Masquerading is checked separately, in
 * the plugin.
 * @throws Error naming the first difference
 */
export function checkConnection(call: Call<PtpConf>, prevResult: Result, plan: PtpPlan): void {
  const container = checkContainerEnd(call, prevResult);
  checkAddresses(
    call.container,
    container,
    plan.ips.map(({ cidr }) => cidr),
  );
  checkRoutes(call.container, container, [...plan.toGateways, ...plan.toSubnets, ...plan.routes]);
  refuseOnLink(call, container, plan);
  const host = checkHostEnd(call, { prevResult, mtu: call.conf.mtu }, container);
  checkAddresses(call.host, host, plan.hostAddresses);
  checkRoutes(call.host, host, plan.hostRoutes);
  checkForwarding(plan.ips.map(({ cidr }) => cidr.ip));
}

/** If the kernel's own on-link route to the subnet came back, the container would look for its neighbours on the wrong link. */
function refuseOnLink({ container }: Call, link: Link, { notOnLink }: PtpPlan): void {
  const present = listRoutes(container).filter(({ oif, gateway, ways }) => {
    return oif === link.index && !gateway && !ways;
  });
  for (const { dst } of notOnLink) {
    const found = present.find(one => one.dst.prefix === dst.prefix && sameIp(one.dst.ip, dst.ip));
    if (found) confirm(`routes of "${link.name}" without gateway`, undefined, renderCidr(found.dst));
  }
}

/**
 * Restores the state of both ends, their addresses and routes, masquerading and forwarding.
 * @throws Error when the pair is missing: only a new ADD can make it, and whatever refers to it must not be restored alone
 */
export async function repairConnection(call: Call<PtpConf>): Promise<void> {
  const { conf, host, container, prevResult } = call;
  const inside = findLink(container, call.env.ifname);
  const outside = inside && findLink(host, inside.peer);
  if (!prevResult || !inside || !outside) {
    throw new Error(
      `Cannot repair the attachment: only DEL and ADD can recreate interface "${call.env.ifname}" and its host end`,
    );
  }
  const plan = planFromResult(prevResult, validatePtpConf(conf));
  const cidrs = plan.ips.map(({ cidr }) => cidr);
  await tryAll([
    () => void repairInterface(call, inside),
    () => raise(container, inside),
    () => repairAddresses(call, inside, cidrs),
    () => raise(host, outside),
    () => repairHostEnd(call, outside, plan),
    () => repairRoutes(call, inside, plan),
    () =>
      ensureForwarding(
        call,
        cidrs.map(({ ip }) => ip),
      ),
    () => {
      if (!conf.ipMasq) return;
      mend(
        () => checkMasquerading(call, backendOf(conf), withSources(conf, cidrs)),
        () => startMasquerading(call, conf, withSources(conf, cidrs)),
      );
    },
  ]);
}

function repairHostEnd({ host }: Call, outside: Link, plan: PtpPlan): void {
  for (const cidr of plan.hostAddresses) {
    mend(
      () => checkAddresses(host, outside, [cidr]),
      () => addHostAddress(host, outside, cidr),
    );
  }
  for (const route of plan.hostRoutes) {
    mend(
      () => checkRoutes(host, outside, [route]),
      () => addHostRoute(host, outside, route),
    );
  }
}

function repairRoutes({ container }: Call, inside: Link, plan: PtpPlan): void {
  for (const routes of [plan.toGateways, plan.routes, plan.toSubnets]) {
    mend(
      () => checkRoutes(container, inside, routes),
      () => putRoutesRight(container, inside, routes),
    );
  }
}
