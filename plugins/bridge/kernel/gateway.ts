// How do gateway addresses get onto the bridge, or onto the gateway port of a VLAN?

import {
  holdingsOf,
  hostsOf,
  type PlannedIp,
  type PlannedRoute,
  refuseMixedFamilies,
  refuseUnusable,
  SHORTEST_PREFIX,
} from '../../../src/attach/addressing.ts';
import { addRoutes, checkRoutes } from '../../../src/attach/container.ts';
import { disableHostIpv6, enableHostIpv6, requireHostIpv6 } from '../../../src/attach/forwarding.ts';
import { type CniError, invalidConfig } from '../../../src/cni/errors.ts';
import { NO_MAC, randomMac } from '../../../src/net/interface.ts';
import {
  type Cidr,
  cidrContains,
  cidrsOverlap,
  IP_BITS,
  renderCidr,
  renderIp,
  sameIp,
  subnetOf,
} from '../../../src/net/ip.ts';
import {
  type Address,
  addAddress,
  findAddressesOf,
  listAddresses,
  RT_SCOPE_LINK,
  RT_SCOPE_UNIVERSE,
  removeAddress,
  restoreAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import { findLink, findLinks, getLink, type Link, setLink } from '../../../src/netlink/rtnl/link.ts';
import { IP6_RT_PRIO_ADDRCONF, RTPROT_KERNEL } from '../../../src/netlink/rtnl/route.ts';
import { type NetlinkSocket, tolerating } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { mend } from '../../../src/plugin/steps.ts';
import { Errno } from '../../../src/sys/errno.ts';
import type { BridgeConf } from '../config.ts';
import type { Addressing } from '../plan.ts';
import { GATEWAY_PORT_ALIAS, isOurs, withBridgeLock } from './bridge.ts';

/**
 * Puts gateway addresses on an interface of the host. Only an overlapping subnet is a conflict, so several range sets and foreign
 * addresses can coexist; the reference allows one IPv4 address. Registers its own undo steps.
 * @param onFailure where it registers them
 * @throws CniError 7 on a conflict, unless `forceAddress` lets the gateway win, for a subnet that is not for containers, and for an
 * address of the container that the host has, or that is the subnet's own
 * @returns the interface, with the hardware address that containers will see for the gateway
 */
export function ensureGateways(
  call: Call<BridgeConf>,
  target: Link,
  { ips, gateways }: Pick<Addressing, 'ips' | 'gateways'>,
  onFailure: Call['onFailure'] = (what, undo) => call.onFailure(what, undo),
): Link {
  const { conf, host } = call;
  const present = listAddresses(host, target.index);
  if (gateways.length) refuseMixedFamilies(ips);
  refuseUnusable(ips, hostsOf(present));
  const missing = gateways.filter(gateway => !present.some(({ cidr }) => sameCidr(cidr, gateway)));
  for (const gateway of missing) refuseSubnet(call, target, gateway, ips);
  for (const gateway of missing) {
    // Backwards: the kernel deletes an address with the first one of its subnet.
    for (const rival of present.filter(address => isRival(address, gateway)).reverse()) {
      if (!conf.forceAddress) throw overlap(target, rival, gateway);
      removeAddress(host, target.index, rival.cidr);
      onFailure(`restore ${renderCidr(rival.cidr)}`, () => restoreAddress(host, rival));
    }
    moveFromIdle(call, target, gateway, onFailure);
  }
  if (missing.some(({ ip }) => ip.family === 6)) allowIpv6(call, target, onFailure);
  for (const gateway of missing) {
    if (!add(host, target, gateway)) continue;
    onFailure(`remove gateway ${renderCidr(gateway)} from "${target.name}"`, () =>
      withBridgeLock(conf.bridge, () => removeIdleGateways(host, conf.bridge, target, [gateway])),
    );
  }
  return missing.length ? pinMac(host, target) : target;
}

/**
 * Returns an adopted bridge in its state after our port joined. Without an explicit hardware address a bridge takes the lowest of
 * its ports', now and whenever a port joins or leaves. A bridge with a gateway keeps the one it has, because containers have it in
 * their neighbour tables: the former one if the kernel has just replaced it with our port's, otherwise what another program has
 * set.
 */
export function keepMac(host: NetlinkSocket, bridge: Link, port: Link, hasGateway: boolean): Link {
  const now = getLink(host, bridge.index);
  if (!hasGateway) return now;
  return pinMac(host, now.mac === port.mac ? bridge : now);
}

/**
 * Rejects gateways in the wrong subnet: a gateway gives the host an address in that subnet and a route to it.
 * @throws CniError 7 when the container may not introduce that subnet, or when it is not a subnet for containers at all
 */
function refuseSubnet(call: Call<BridgeConf>, target: Link, gateway: Cidr, ips: readonly PlannedIp[]): void {
  const problem = findSubnetProblem(call, target, gateway, ips);
  if (problem === undefined) return;
  throw invalidConfig(
    `Cannot add gateway ${renderCidr(gateway)} to ${target.kind} "${target.name}": ${problem}`,
    {
      details:
        'a requested address must be in a subnet of "ipam", or in one in which the bridge has an address',
    },
  );
}

function findSubnetProblem(
  call: Call<BridgeConf>,
  target: Link,
  gateway: Cidr,
  ips: readonly PlannedIp[],
): string | undefined {
  const { holds, names, isAsked } = holdingsOf(call);
  const subnet = renderCidr(subnetOf(gateway));
  if (gateway.prefix < SHORTEST_PREFIX)
    return `${subnet} is too large a subnet for containers, the prefix length must be at least ${SHORTEST_PREFIX}`;
  if (names(gateway)) return undefined;
  const asked = [gateway.ip, ...hostsOf(ips.filter(ip => isBehind(ip, gateway)))];
  if (asked.some(isAsked) && !holds(gateway)) {
    return `it was requested for the container, and neither the configuration nor "${target.name}" has ${subnet}`;
  }
  const own = listAddresses(call.host).find(
    ({ index, scope, cidr }) =>
      index !== target.index && scope === RT_SCOPE_UNIVERSE && cidrContains(gateway, cidr.ip),
  );
  return own && `${subnet} contains ${renderIp(own.cidr.ip)}, an address of this host`;
}

/** A bridge, or gateway port, of ours gets IPv6 where the host disables it by default; others are their owner's. */
function allowIpv6({ conf, host }: Call<BridgeConf>, target: Link, onFailure: Call['onFailure']): void {
  const isMade = isOurs(target) || target.attrs.alias === GATEWAY_PORT_ALIAS;
  if (!isMade) requireHostIpv6(target.name);
  else if (enableHostIpv6(target.name))
    onFailure(`disable IPv6 on "${target.name}" again`, () =>
      withBridgeLock(conf.bridge, () => {
        // A gateway that is left is another container's, too, and the kernel would remove it.
        const isLeft = listAddresses(host, target.index).some(isOfIpv6);
        if (!isLeft) disableHostIpv6(target.name);
      }),
    );
}

function isOfIpv6({ cidr, scope }: Address): boolean {
  return cidr.ip.family === 6 && scope !== RT_SCOPE_LINK;
}

/**
 * A network that has moved to another bridge left its gateway on the former one, which would still attract the host's packets to the
 * subnet.
 */
function moveFromIdle({ host }: Call, target: Link, gateway: Cidr, onFailure: Call['onFailure']): void {
  for (const former of listAddresses(host)) {
    if (former.index === target.index || !sameCidr(former.cidr, gateway)) continue;
    const bridge = findLink(host, former.index);
    if (bridge?.kind !== 'bridge' || !isOurs(bridge) || listBridgePorts(host, bridge.index).length) continue;
    removeIdleGateways(host, bridge.name, bridge, [gateway]);
    onFailure(`restore ${renderCidr(gateway)} on "${bridge.name}"`, () => restoreAddress(host, former));
  }
}

function isBehind({ cidr, gateway }: PlannedIp, { ip, prefix }: Cidr): boolean {
  return gateway !== undefined && cidr.prefix === prefix && sameIp(gateway, ip);
}

/** Sets an explicit hardware address, which does not change with the ports. A bridge that lost its last port may have none. */
function pinMac(host: NetlinkSocket, target: Link): Link {
  const mac = target.mac && target.mac !== NO_MAC ? target.mac : randomMac();
  setLink(host, target.index, { mac });
  return { ...target, mac };
}

/** The kernel's own link-local address may share fe80::/64 with a gateway. */
function isRival({ cidr, scope }: Address, gateway: Cidr): boolean {
  return scope !== RT_SCOPE_LINK && cidrsOverlap(cidr, gateway);
}

function overlap(target: Link, rival: Address, gateway: Cidr): CniError {
  const [wanted, found] = [renderCidr(gateway), renderCidr(rival.cidr)];
  return invalidConfig(
    `Cannot add gateway ${wanted} to ${target.kind} "${target.name}": it has ${found}, whose subnet overlaps`,
    { details: 'set "forceAddress": true to replace that address' },
  );
}

/** @returns whether it was added: a concurrent ADD may have added it first */
function add(host: NetlinkSocket, target: Link, cidr: Cidr): true | undefined {
  return tolerating([Errno.EEXIST], () => {
    // Only the host could claim the gateway's address, so there is nothing to wait for.
    addAddress(host, target.index, cidr, { nodad: true });
    return true;
  });
}

function sameCidr(a: Cidr, b: Cidr): boolean {
  return a.prefix === b.prefix && sameIp(a.ip, b.ip);
}

/**
 * Removes gateways whose subnets no container of the bridge uses. In doubt they are kept: a port that is not a container's veth
 * may lead anywhere, and a container without an address may be about to get one. So is one beside an address of another's in its
 * subnet, which the kernel would remove with it. Call under `withBridgeLock`.
 */
export function removeIdleGateways(
  host: NetlinkSocket,
  bridge: string,
  target: Link,
  gateways: readonly Cidr[],
): void {
  const found = findLink(host, bridge);
  if (found === undefined) return;
  const ports = listBridgePorts(host, found.index).map(({ index }) => index);
  const present = listAddresses(host, target.index).filter(({ scope }) => scope !== RT_SCOPE_LINK);
  for (const gateway of gateways) {
    const inside = present.filter(({ cidr }) => cidrContains(gateway, cidr.ip));
    const isAlone = inside.every(({ cidr }) => sameIp(cidr.ip, gateway.ip));
    if (isAlone && !mayBeUsed(host, ports, gateway)) removeAddress(host, target.index, gateway);
  }
}

function mayBeUsed(host: NetlinkSocket, ports: readonly number[], gateway: Cidr): boolean {
  // One after the other: usually the first container is in the subnet, and the others need not be queried.
  return ports.some(index => {
    const [port] = findLinks(host, [index]);
    if (port === undefined || port.attrs.alias === GATEWAY_PORT_ALIAS) return false;
    const { linkNetnsId } = port.attrs;
    if (port.kind !== 'veth' || linkNetnsId === undefined) return true;
    const addresses = findAddressesOf(host, linkNetnsId, port.peer)?.filter(
      ({ scope }) => scope === RT_SCOPE_UNIVERSE,
    );
    return !addresses?.length || addresses.some(({ cidr }) => cidrContains(gateway, cidr.ip));
  });
}

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
    : { ...route, priority: IP6_RT_PRIO_ADDRCONF };
}

/** An address without a subnet has no such route. */
function wide(gateways: readonly Cidr[]): Cidr[] {
  return gateways.filter(({ ip, prefix }) => prefix < IP_BITS[ip.family]);
}
