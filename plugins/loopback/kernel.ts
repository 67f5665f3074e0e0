// How is the loopback interface brought up and down?
import type { Cidr } from '../../src/net/cidr.ts';
import { listAddresses } from '../../src/netlink/rtnl/addr.ts';
import { getLink, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { LOOPBACK } from './plan.ts';

/**
 * Sets the interface up or down.
 * @returns whether that changed anything
 * Same as: `ip link set lo up`
 */
export function setLoopback(socket: NetlinkSocket, up: boolean): boolean {
  if (isLoopbackUp(socket) === up) return false;
  setLink(socket, getLink(socket, LOOPBACK).index, { up });
  return true;
}

/** True when the interface is up. Same as: `ip link show lo up` */
export function isLoopbackUp(socket: NetlinkSocket): boolean {
  return (getLink(socket, LOOPBACK).flags & IFF_UP) !== 0;
}

/** Addresses of the interface in the kernel's order. Same as: `ip addr show lo` */
export function listLoopbackAddresses(socket: NetlinkSocket): Cidr[] {
  return listAddresses(socket, getLink(socket, LOOPBACK).index).map(({ cidr }) => cidr);
}
