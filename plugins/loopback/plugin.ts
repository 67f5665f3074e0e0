// What does loopback do for each verb?

import type { Result } from '../../src/cni/result.ts';
import { NO_MAC } from '../../src/net/interface.ts';
import { type Cidr, FAMILIES, renderCidr } from '../../src/net/ip.ts';
import { listAddresses } from '../../src/netlink/rtnl/addr.ts';
import { getLink, IFF_UP, setLink } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { LoopbackConf } from './config.ts';

/** Name of the loopback interface; `CNI_IFNAME` is ignored. */
const LOOPBACK = 'lo';

/**
 * The result of an ADD without a prevResult: the interface with the first loopback address of each family.
 * @param addresses those of the interface, in the kernel's order
 */
export function planResult(addresses: readonly Cidr[], sandbox: string): Result {
  const ips = FAMILIES.flatMap(family => {
    const first = addresses.find(address => address.ip.family === family && isLoopback(address));
    return first === undefined ? [] : [{ address: renderCidr(first), interface: 0 }];
  });
  return { interfaces: [{ name: LOOPBACK, mac: NO_MAC, sandbox }], ips };
}

/** True for addresses in 127.0.0.0/8 and for ::1. */
export function isLoopback({ ip }: Cidr): boolean {
  return ip.family === 4 ? ip.value >> 24n === 127n : ip.value === 1n;
}

/** Brings up the container's loopback interface. */
export const plugin = definePlugin({
  name: 'loopback',
  config: LoopbackConf,
  netns: 'required',

  add(call) {
    const { container } = call;
    const changed = setLoopback(container, true);
    if (changed) call.onFailure('set the loopback interface down', () => void setLoopback(container, false));
    if (call.prevResult) return call.prevResult;
    const addresses = listAddresses(container, getLink(container, LOOPBACK).index);
    return planResult(
      addresses.map(({ cidr }) => cidr),
      call.env.netns,
    );
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
