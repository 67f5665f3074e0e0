// How do gateway addresses get onto the bridge, or onto the gateway port of a VLAN?
import type { PlannedIp } from '../../../src/attach/addressing.ts';
import { holdingsOf, SHORTEST_PREFIX } from '../../../src/attach/held-subnets.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { type Cidr, cidrContains, cidrsOverlap, renderCidr, subnetOf } from '../../../src/net/cidr.ts';
import { renderIp, sameIp } from '../../../src/net/ip.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import {
  type Address,
  addAddress,
  listAddresses,
  RT_SCOPE_LINK,
  RT_SCOPE_UNIVERSE,
  removeAddress,
  restoreAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { getLink, type Link, setLink } from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { Errno } from '../../../src/sys/errno.ts';
import type { BridgeConf } from '../config.ts';
import type { Addressing } from '../plan.ts';
import { removeIdleGateways } from './idle-gateway.ts';
import { withBridgeLock } from './lock.ts';
import { randomMac } from './random-mac.ts';

const NO_MAC = '00:00:00:00:00:00';

/**
 * Puts gateway addresses on an interface of the host. Only an overlapping subnet is a conflict, so several range sets and foreign
 * addresses can coexist; the reference allows one IPv4 address. Registers its own undo steps.
 * @param onFailure where it registers them
 * @throws CniError 7 on a conflict, unless `forceAddress` lets the gateway win, and for a subnet that is not for containers
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
  const missing = gateways.filter(gateway => !present.some(({ cidr }) => sameCidr(cidr, gateway)));
  for (const gateway of missing) refuseSubnet(call, target, gateway, ips);
  for (const gateway of missing) {
    for (const rival of present.filter(address => isRival(address, gateway))) {
      if (!conf.forceAddress) throw overlap(target, rival, gateway);
      removeAddress(host, target.index, rival.cidr);
      onFailure(`restore ${renderCidr(rival.cidr)}`, () => restoreAddress(host, rival));
    }
  }
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

/** True when the interface has a global address that is not ours; without a list, every address counts as ours. */
export function hasForeignAddress(
  socket: NetlinkSocket,
  link: Link,
  ours: readonly Cidr[] | undefined,
): boolean {
  if (ours === undefined) return false;
  return listAddresses(socket, link.index).some(
    ({ cidr, scope }) => scope !== RT_SCOPE_LINK && !ours.some(own => sameCidr(own, cidr)),
  );
}

/** Removes the addresses of a bridge without containers, but not the kernel's own link-local one. */
export function removeAddresses(
  socket: NetlinkSocket,
  { index }: Link,
  ours: readonly Cidr[] | undefined = [],
): void {
  for (const { cidr, scope } of listAddresses(socket, index)) {
    if (scope !== RT_SCOPE_LINK || ours.some(own => sameCidr(own, cidr))) removeAddress(socket, index, cidr);
  }
}

/**
 * Rejects gateways in the wrong subnet: a gateway gives the host an address in that subnet and a route to it.
 * @throws CniError 7 when the container may not introduce that subnet, or when it is not a subnet for containers at all
 */
function refuseSubnet(call: Call<BridgeConf>, target: Link, gateway: Cidr, ips: readonly PlannedIp[]): void {
  const problem = findSubnetProblem(call, target, gateway, ips);
  if (problem === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
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
  const asked = [gateway.ip, ...ips.filter(ip => isBehind(ip, gateway)).map(({ cidr }) => cidr.ip)];
  if (asked.some(isAsked) && !holds(gateway)) {
    return `it was requested for the container, and neither the configuration nor "${target.name}" has ${subnet}`;
  }
  const own = listAddresses(call.host).find(
    ({ index, scope, cidr }) =>
      index !== target.index && scope === RT_SCOPE_UNIVERSE && cidrContains(gateway, cidr.ip),
  );
  return own && `${subnet} contains ${renderIp(own.cidr.ip)}, an address of this host`;
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
  return new CniError(
    ErrorCode.invalidConfig,
    `Cannot add gateway ${wanted} to ${target.kind} "${target.name}": it has ${found}, whose subnet overlaps`,
    { details: 'set "forceAddress": true to replace that address' },
  );
}

/** @returns false when the address already existed: a concurrent ADD may have added it first */
function add(host: NetlinkSocket, target: Link, cidr: Cidr): boolean {
  try {
    // Only the host could claim the gateway's address, so there is nothing to wait for.
    addAddress(host, target.index, cidr, { nodad: true });
    return true;
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EEXIST)) return false;
    throw thrown;
  }
}

function sameCidr(a: Cidr, b: Cidr): boolean {
  return a.prefix === b.prefix && sameIp(a.ip, b.ip);
}
