// What does loopback do for each verb?

import type { Cidr } from '../../src/net/cidr.ts';
import { listAddresses } from '../../src/netlink/rtnl/addr.ts';
import { getLink, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { LoopbackConf } from './config.ts';
import { LOOPBACK, planResult } from './plan.ts';

/** Brings up the container's loopback interface. */
export const loopback = definePlugin({
  name: 'loopback',
  config: LoopbackConf,
  netns: 'required',

  add(call) {
    const { container } = call;
    const changed = setLoopback(container, true);
    if (changed) call.onFailure('set the loopback interface down', () => void setLoopback(container, false));
    return call.prevResult ?? planResult(listLoopbackAddresses(container), call.env.netns);
  },

  check(call) {
    if (isLoopbackUp(call.container)) return;
    throw new Error(`Cannot confirm the loopback interface in "${call.env.netns}": it is down`);
  },

  repair(call) {
    setLoopback(call.container, true);
  },

  // A late DEL may find another container's loopback at the path, and nothing tells them apart.
  del: nothingToDo('the interface ends with its namespace'),
  gc: nothingToDo('the kernel deletes the interface with its namespace'),
  status: nothingToDo('every kernel has a loopback interface'),
});

/**
 * Sets the interface up or down.
 * @returns whether that changed anything
 * Same as: `ip link set lo up`
 */
function setLoopback(socket: NetlinkSocket, up: boolean): boolean {
  if (isLoopbackUp(socket) === up) return false;
  setLink(socket, getLink(socket, LOOPBACK).index, { up });
  return true;
}

/** True when the interface is up. Same as: `ip link show lo up` */
function isLoopbackUp(socket: NetlinkSocket): boolean {
  return (getLink(socket, LOOPBACK).flags & IFF_UP) !== 0;
}

/** Addresses of the interface in the kernel's order. Same as: `ip addr show lo` */
function listLoopbackAddresses(socket: NetlinkSocket): Cidr[] {
  return listAddresses(socket, getLink(socket, LOOPBACK).index).map(({ cidr }) => cidr);
}
