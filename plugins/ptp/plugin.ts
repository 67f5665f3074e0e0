// What does the ptp plugin do for each verb?

import {
  callIpam,
  cidrsOf,
  dnsOf,
  hostsOf,
  type PlannedRoute,
  prepareIpam,
} from '../../src/attach/addressing.ts';
import {
  addRoutes,
  addressContainer,
  checkRoutes,
  describeInterface,
  ignoreNeighbours,
  repairAddresses,
  repairInterface,
  repairRoutes,
} from '../../src/attach/container.ts';
import {
  checkAddresses,
  checkContainerEnd,
  checkHostEnd,
  checkNeighbours,
  raise,
  removeWrongNeighbours,
  repairHostMac,
  requirePrevResult,
} from '../../src/attach/device.ts';
import {
  checkForwarding,
  enableHostIpv6,
  ensureForwarding,
  stuckFamilies,
} from '../../src/attach/forwarding.ts';
import { resolveMtu } from '../../src/attach/mac-and-mtu.ts';
import {
  checkMasquerading,
  handOverMasquerading,
  probeMasquerading,
  repairMasquerading,
  startMasquerading,
  stopMasquerading,
  stopStaleMasquerading,
} from '../../src/attach/masquerading.ts';
import { noteOf, refuserFor } from '../../src/attach/owner.ts';
import { awaitTraffic, warnOfDroppingChains } from '../../src/attach/ready.ts';
import { createPair, type Pair, removePair, removeStalePairs } from '../../src/attach/veth.ts';
import { findOwner } from '../../src/cni/attachment.ts';
import { defined } from '../../src/cni/json.ts';
import { type Result, resultIp } from '../../src/cni/result.ts';
import { renderCidr, sameSubnet } from '../../src/net/ip.ts';
import { addAddress } from '../../src/netlink/rtnl/addr.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/kinds.ts';
import { findHostEnd, findLink, type Link, listLinks, setLink } from '../../src/netlink/rtnl/link.ts';
import {
  addRoute,
  listRoutes,
  prependRoute,
  type Route,
  removeRoute,
  replaceRoute,
} from '../../src/netlink/rtnl/route.ts';
import { type NetlinkSocket, tolerating } from '../../src/netlink/socket.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { confirm, mend, requireReadiness, tryAll } from '../../src/plugin/steps.ts';
import { Errno } from '../../src/sys/errno.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import { PtpConf, validatePtpConf } from './config.ts';
import { CONTAINER_INTERFACE, type PtpPlan, planFromResult, planPtp, refuseBrought } from './plan.ts';

/** Connects a container to the host, with the host as its only neighbour. */
export const plugin = definePlugin({
  name: 'ptp',
  config: PtpConf,
  netns: 'required',

  async add(call) {
    const type = validatePtpConf(call.conf);
    const ipam = (await prepareIpam(call)()) ?? {};
    const plan = planPtp(ipam, type);
    refuseBrought(call, plan);
    const pair = connect(call, plan);
    await awaitTraffic(call.log, [
      { socket: call.container, link: pair.container, ips: hostsOf(plan.ips) },
      { socket: call.host, link: pair.host, ips: plan.hostAddresses.map(({ ip }) => ip) },
    ]);
    ensureForwarding(call, cidrsOf(plan.ips), pair.host.name);
    return renderConnection(call, pair, ipam, plan);
  },

  async check(call) {
    const { conf } = call;
    const type = validatePtpConf(conf);
    await call.delegate(type).check();
    const prevResult = requirePrevResult(call);
    const plan = planFromResult(prevResult, type);
    checkConnection(call, prevResult, plan);
    if (conf.ipMasq) checkMasquerading(call, conf, cidrsOf(plan.ips));
  },

  repair: repairConnection,

  handOver(call, mode) {
    const { conf, prevResult } = call;
    const ips = conf.ipMasq && prevResult?.ips ? planFromResult(prevResult, validatePtpConf(conf)).ips : [];
    return handOverMasquerading(call, cidrsOf(ips), mode);
  },

  // The address is released last: it must not be reused while anything still refers to it.
  del: call => removePair(call, () => tryAll([() => stopMasquerading(call), () => callIpam(call, 'del')])),

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeStalePairs(call, kept, () =>
      tryAll([() => stopStaleMasquerading(call, kept), () => callIpam(call, 'gc')]),
    );
  },

  async status(call) {
    const type = validatePtpConf(call.conf);
    await probePtp(call);
    await call.delegate(type).status();
  },
});

/** The result: host end and container interface in this order, then the IPAM result. */
function renderConnection(
  call: Call<PtpConf>,
  { host, container }: Pair,
  ipam: Result,
  { ips }: PtpPlan,
): Result {
  const dns = dnsOf(call.conf, ipam);
  return {
    ...ipam,
    interfaces: [
      { name: host.name, mac: host.mac ?? '' },
      describeInterface(call, container, call.conf.mtu !== 0),
    ],
    ips: ips.map(ip => resultIp(ip, CONTAINER_INTERFACE)),
    ...defined({ dns }),
  };
}

/**
 * Looks for anything that would make ADD fail: veth pairs, the packet filter, forwarding. Changes nothing. The IPAM plugin
 * decides which families the next container gets, so forwarding of one family is enough.
 * @throws CniError 50
 */
function probePtp(call: Call<PtpConf>): Promise<void> {
  return requireReadiness(() => {
    requireLinkKind(call.host, 'veth');
    if (call.conf.ipMasq) probeMasquerading(call, call.conf);
    if (stuckFamilies().length === 2) throw new Error('forwarding is off and cannot be turned on');
    warnOfDroppingChains(call);
  });
}

/** Creates the pair and configures both ends according to the plan. Registers its own undo steps. */
function connect(call: Call<PtpConf>, plan: PtpPlan): Pair {
  const { conf } = call;
  // Everything that follows belongs to one of the ends, and is deleted with it.
  const pair = createPair(call, { mtu: resolveMtu(call.host, conf.mtu) });
  trySysctl(`net/ipv6/conf/${pair.host.name}/accept_ra`, '0');
  // During duplicate address detection of its link-local address (one second) the host could not resolve the container's address.
  trySysctl(`net/ipv6/conf/${pair.host.name}/accept_dad`, '0');
  ignoreNeighbours(call, pair.container.name);
  // Before the container has a route: it may run already, and what it sends untranslated stays so, as long as the flow goes on.
  if (conf.ipMasq) startMasquerading(call, conf, cidrsOf(plan.ips));
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
  addressContainer(call, link, cidrsOf(plan.ips), false);
  addRoutes(container, link, plan.toGateways);
  // Before the subnets' on-link routes are removed: a route may name another gateway in a subnet.
  addRoutes(container, link, plan.routes);
  for (const route of plan.notOnLink) removeRoute(container, { ...route, oif: link.index });
  addRoutes(container, link, plan.toSubnets);
}

/** No other device on the link could have the gateway's address, so duplicates are not looked for. */
function configureHostEnd(call: Call, link: Link, plan: PtpPlan): void {
  if (plan.hostAddresses.some(({ ip }) => ip.family === 6)) enableHostIpv6(link.name);
  for (const cidr of plan.hostAddresses) addAddress(call.host, link.index, cidr, { nodad: true });
  for (const route of plan.hostRoutes) addHostRoute(call, link, route);
}

/**
 * Routes the container's address to the host end. Another route to it leads to a previous holder: of two, IPv4 uses the newer one, but
 * IPv6 the older, which is replaced.
 * @throws CniError 101 when that holder is alive, and would be cut off
 */
function addHostRoute(call: Call, link: Link, route: PlannedRoute): void {
  const { host } = call;
  const own = { ...route, oif: link.index };
  const isAdded = tolerating([Errno.EEXIST], () => {
    addRoute(host, own);
    return true;
  });
  if (isAdded) return;
  refuseLivingHolder(call, own);
  if (route.dst.ip.family === 4) prependRoute(host, own);
  else replaceRoute(host, own);
}

/** @throws CniError 101 */
function refuseLivingHolder(call: Call, { dst, oif }: Pick<Route, 'dst' | 'oif'>): void {
  const rivals = listRoutes(call.host).filter(one => one.oif !== oif && sameSubnet(one.dst, dst));
  const links = listLinks(call.host).filter(({ index }) => rivals.some(one => one.oif === index));
  refuserFor(call)(
    links.map(({ attrs }) => {
      const owner = findOwner(attrs.alias);
      return { ip: dst.ip, owner: owner && noteOf(owner) };
    }),
  );
}

/**
 * Compares both ends, their addresses and routes, and forwarding with the result of ADD. Masquerading is checked separately, in
 * the plugin.
 * @throws Error naming the first difference
 */
function checkConnection(call: Call<PtpConf>, prevResult: Result, plan: PtpPlan): void {
  const container = checkContainerEnd(call, prevResult);
  checkAddresses(call.container, container, cidrsOf(plan.ips));
  checkRoutes(call.container, container, [...plan.toGateways, ...plan.toSubnets, ...plan.routes]);
  refuseOnLink(call, container, plan);
  const host = checkHostEnd(call, prevResult, container, call.conf.mtu);
  confirm(`bridge of "${host.name}"`, undefined, findBridge(call.host, host));
  checkAddresses(call.host, host, plan.hostAddresses);
  checkRoutes(call.host, host, plan.hostRoutes);
  checkNeighbours(call.container, container, host, plan.hostAddresses);
  checkNeighbours(call.host, host, container, cidrsOf(plan.ips));
  checkForwarding(cidrsOf(plan.ips), host.name);
}

/** If the kernel's own on-link route to the subnet came back, the container would look for its neighbours on the wrong link. */
function refuseOnLink(call: Call, link: Link, plan: PtpPlan): void {
  const [found] = listOnLink(call, link, plan);
  if (found) confirm(`routes of "${link.name}" without gateway`, undefined, renderCidr(found.dst));
}

function listOnLink({ container }: Call, link: Link, { notOnLink }: PtpPlan): Route[] {
  return listRoutes(container).filter(({ oif, gateway, ways, dst }) => {
    return oif === link.index && !gateway && !ways && notOnLink.some(one => sameSubnet(one.dst, dst));
  });
}

/** The bridge that the host end has become a port of: the host then hears the container on the bridge only. */
function findBridge(host: NetlinkSocket, { master }: Link): string | undefined {
  const found = master ? findLink(host, master) : undefined;
  return found?.kind === 'bridge' ? found.name : undefined;
}

/**
 * Restores the state of both ends, their addresses and routes, masquerading and forwarding.
 * @throws Error when the pair is missing: only a new ADD can make it, and whatever refers to it must not be restored alone
 */
async function repairConnection(call: Call<PtpConf>): Promise<void> {
  const { conf, host, container, prevResult } = call;
  const inside = findLink(container, call.env.ifname);
  const outside = inside && findHostEnd(call, inside);
  if (!prevResult || !inside || !outside) {
    throw new Error(
      `Cannot repair the attachment: only DEL and ADD can recreate interface "${call.env.ifname}" and its host end`,
    );
  }
  const plan = planFromResult(prevResult, validatePtpConf(conf));
  const cidrs = cidrsOf(plan.ips);
  await tryAll([
    () => {
      const [within, beyond] = [repairInterface(call, inside), repairHostMac(call, outside)];
      removeWrongNeighbours(container, within, beyond, plan.hostAddresses);
      removeWrongNeighbours(host, beyond, within, cidrs);
    },
    () => raise(container, inside),
    () => repairAddresses(call, inside, cidrs),
    () => raise(host, outside),
    () => {
      if (findBridge(host, outside)) setLink(host, outside.index, { master: 0 });
    },
    () => repairHostEnd(call, outside, plan),
    () => {
      for (const routes of [plan.toGateways, plan.routes]) repairRoutes(container, inside, routes);
      // The kernel makes them whenever the interface comes up, or gets an address.
      for (const route of listOnLink(call, inside, plan)) removeRoute(container, route);
      repairRoutes(container, inside, plan.toSubnets);
    },
    () => ensureForwarding(call, cidrs, outside.name),
    () => {
      if (conf.ipMasq) repairMasquerading(call, conf, cidrs);
    },
  ]);
}

function repairHostEnd(call: Call, outside: Link, plan: PtpPlan): void {
  const { host } = call;
  for (const cidr of plan.hostAddresses) {
    mend(
      () => checkAddresses(host, outside, [cidr]),
      () => {
        if (cidr.ip.family === 6) enableHostIpv6(outside.name);
        addAddress(host, outside.index, cidr, { nodad: true });
      },
    );
  }
  for (const route of plan.hostRoutes) {
    mend(
      () => checkRoutes(host, outside, [route]),
      () => addHostRoute(call, outside, route),
    );
  }
}
