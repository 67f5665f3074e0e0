// Which MTU does `"mtu": "auto"` stand for?
import { TUNNEL_ALIAS, TUNNELS } from '../between/names.ts';
import { findLink, findLinks } from '../netlink/rtnl/link.ts';
import { listRoutes, type Route, RT_TABLE_MAIN } from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';

/** The value of `mtu` that follows the host's uplink. */
export const AUTO_MTU = 'auto';

/** An MTU as configured: bytes, 0 for the kernel's default, or {@link AUTO_MTU}. */
type ConfiguredMtu = number | typeof AUTO_MTU;

/** @returns what is wrong with a configured MTU, or undefined */
export function findMtuProblem(mtu: ConfiguredMtu): string | undefined {
  if (mtu === AUTO_MTU) return undefined;
  if (mtu >= 0 && mtu <= 65535) return undefined;
  return `"mtu" is ${mtu}, expected 68 to 65535, 0 for the default, or "auto"`;
}

/**
 * The MTU in bytes, 0 for the kernel's default. `auto` is that of the uplink, or without one of the interface of the default route, IPv4's
 * before IPv6's; a route's own MTU counts if it is smaller, and so does that of a tunnel to other nodes. Without any of them it is the
 * kernel's default.
 * @param uplink the device that leads out, if that is not up to the routes
 */
export function resolveMtu(socket: NetlinkSocket, mtu: ConfiguredMtu, uplink?: string): number {
  if (typeof mtu === 'number') return mtu;
  const tunnels = findLinks(socket, Object.values(TUNNELS)).filter(
    link => link?.attrs.alias === TUNNEL_ALIAS,
  );
  const known = [uplinkMtu(socket, uplink), ...tunnels.map(link => link?.mtu ?? 0)].filter(one => one > 0);
  return known.length ? Math.min(...known) : 0;
}

function uplinkMtu(socket: NetlinkSocket, uplink: string | undefined): number {
  if (uplink) return findLink(socket, uplink)?.mtu ?? 0;
  const [route] = listDefaultRoutes(socket);
  const link = route && findLink(socket, route.oif);
  return link ? Math.min(link.mtu, route.mtu ?? link.mtu) : 0;
}

/** The default routes of the main table: IPv4's before IPv6's, and of one family those that the kernel prefers first. */
export function listDefaultRoutes(socket: NetlinkSocket): Route[] {
  return listRoutes(socket)
    .filter(({ dst, table }) => dst.prefix === 0 && table === RT_TABLE_MAIN)
    .sort((a, b) => a.dst.ip.family - b.dst.ip.family || (a.priority ?? 0) - (b.priority ?? 0));
}
