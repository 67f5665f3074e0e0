// Does the kernel have the interface that a result names?
import type { Result } from '../cni/result.ts';
import { findLink } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, findNetns, inNetns } from '../sys/netns.ts';

/**
 * Why the interface of an attachment cannot be the one of its ADD; undefined if nothing contradicts that.
 * @param netns path of the namespace
 * @param result of the ADD, for the hardware address
 */
export function findInterfaceProblem(netns: string, ifname: string, result: Result): string | undefined {
  const place = findNetns(netns);
  if (place === undefined) return `its namespace "${netns}" no longer exists`;
  try {
    const socket = inNetns(place, () => new NetlinkSocket(NETLINK_ROUTE));
    try {
      const link = findLink(socket, ifname);
      if (link === undefined) return `its namespace has no interface "${ifname}"`;
      const told = result.interfaces?.find(one => one.sandbox && one.name === ifname)?.mac?.toLowerCase();
      if (!told || told === link.mac) return undefined;
      return `interface "${ifname}" has hardware address ${link.mac}, not ${told}`;
    } finally {
      socket.close();
    }
  } catch (error) {
    return `cannot look into its namespace: ${(error as Error).message}`;
  } finally {
    closeNetns(place);
  }
}
