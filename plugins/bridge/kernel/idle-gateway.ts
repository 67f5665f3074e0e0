// Which gateways of a bridge does no container need any longer?
import { type Cidr, cidrContains, renderCidr } from '../../../src/net/cidr.ts';
import {
  findAddressesOf,
  listAddresses,
  RT_SCOPE_UNIVERSE,
  removeAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import { findLink, findLinks, type Link } from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { GATEWAY_PORT_ALIAS } from './port-alias.ts';

/**
 * Removes gateways whose subnets no container of the bridge uses. In doubt they are kept: a port that is not a container's veth
 * may lead anywhere, and a container without an address may be about to get one. Call under `withBridgeLock`.
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
  for (const gateway of gateways) {
    if (!mayBeUsed(host, ports, gateway)) removeAddress(host, target.index, gateway);
  }
}

/**
 * Those of an attachment's gateways that may be idle after its DEL: the ones that the configuration does not hold, and all of
 * them if the interface carries further subnets, which would prevent the removal of a bridge of ours.
 */
export function findLeftovers(
  host: NetlinkSocket,
  target: Link,
  gateways: readonly Cidr[],
  isHeld: (gateway: Cidr) => boolean,
): Cidr[] {
  const texts = listAddresses(host, target.index)
    .filter(({ scope }) => scope === RT_SCOPE_UNIVERSE)
    .map(({ cidr }) => renderCidr(cidr));
  const own = gateways.filter(gateway => texts.includes(renderCidr(gateway)));
  return own.length < texts.length ? own : own.filter(gateway => !isHeld(gateway));
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
