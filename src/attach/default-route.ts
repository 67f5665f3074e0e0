// Which routes does a namespace use for what no other takes?
import { listRoutes, type Route, RT_TABLE_MAIN } from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';

/** The default routes of the main table: IPv4's before IPv6's, and of one family those that the kernel prefers first. */
export function listDefaultRoutes(socket: NetlinkSocket): Route[] {
  return listRoutes(socket)
    .filter(({ dst, table }) => dst.prefix === 0 && table === RT_TABLE_MAIN)
    .sort((a, b) => a.dst.ip.family - b.dst.ip.family || (a.priority ?? 0) - (b.priority ?? 0));
}
