// How does an interface follow a lease that has changed?
import { planRoute } from '../../src/attach/addressing.ts';
import { addRoutes } from '../../src/attach/routes.ts';
import type { Log } from '../../src/log.ts';
import { parseCidr, renderCidr } from '../../src/net/cidr.ts';
import { sameIp } from '../../src/net/ip.ts';
import { addAddressRequest, listAddresses, removeAddress } from '../../src/netlink/rtnl/addr.ts';
import { type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Lease } from './lease.ts';
import { resultOf } from './plan.ts';

/**
 * Lowers the MTU of the interface to the one that the server names. A larger one than the interface has is not believed: the
 * link would drop such packets.
 * @returns whether it was changed
 */
export function limitMtu(socket: NetlinkSocket, link: Link, { mtu }: Lease, log: Log): boolean {
  if (mtu === undefined || mtu === link.mtu) return false;
  if (mtu > link.mtu) {
    log.debug(`Ignoring MTU ${mtu} of the DHCP server: "${link.name}" has ${link.mtu}`);
    return false;
  }
  setLink(socket, link.index, { mtu });
  return true;
}

/** Gives the interface the lease's address and routes in place of an earlier one's. What is there already is left alone. */
export function moveAddress(
  socket: NetlinkSocket,
  link: Link,
  { before, after, priority }: { before: Lease; after: Lease; priority: number | undefined },
): void {
  const isNew = !hasAddress(socket, link, after);
  if (before.address !== after.address) withdrawAddress(socket, link, before);
  const cidr = parseCidr(after.address);
  const { ips = [], routes = [] } = resultOf(after, priority);
  const planned = ips.map(({ address, gateway }) => ({
    cidr: parseCidr(address),
    gateway: gateway ? parseCidr(`${gateway}/32`).ip : undefined,
  }));
  if (isNew || JSON.stringify(before.routes) !== JSON.stringify(after.routes)) {
    addRoutes(
      socket,
      link,
      routes.map(route => planRoute(route, planned)),
      isNew ? [addAddressRequest(link.index, cidr, {})] : [],
    );
  }
}

/** Takes the address of a lease that is over from the interface; the routes through it go with it. */
export function withdrawAddress(socket: NetlinkSocket, link: Link, lease: Lease): void {
  if (hasAddress(socket, link, lease)) removeAddress(socket, link.index, parseCidr(lease.address));
}

/** Whether the interface has the address of a lease. */
export function hasAddress(socket: NetlinkSocket, link: Link, { address }: Lease): boolean {
  const wanted = parseCidr(address);
  return listAddresses(socket, link.index).some(
    ({ cidr }) => sameIp(cidr.ip, wanted.ip) && renderCidr(cidr) === renderCidr(wanted),
  );
}
