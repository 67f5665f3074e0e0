// Which gateways of a bridge does no container need any longer?
import { type Cidr, cidrContains } from '../../../src/net/cidr.ts';
import { sameIp } from '../../../src/net/ip.ts';
import {
  findAddressesOf,
  listAddresses,
  RT_SCOPE_LINK,
  RT_SCOPE_UNIVERSE,
  removeAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import { findLink, findLinks, type Link } from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { GATEWAY_PORT_ALIAS } from './port-alias.ts';

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
