// How are the default routes of a container read and changed?
import type { ContainerRoutes } from '../../src/delegate/runner.ts';
import { ANYWHERE, FAMILIES, parseCidr } from '../../src/net/ip.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import {
  addRoute,
  listRoutes,
  type Route,
  RT_TABLE_MAIN,
  removeRoute,
} from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';

/** Default routes of the main table, through a socket in the container's namespace that is opened on demand. */
export function containerRoutes(socket: () => NetlinkSocket): ContainerRoutes {
  return {
    familiesWithDefault(ifnames) {
      const routes = defaultsOf(socket(), ifnames);
      return FAMILIES.filter(family => routes.some(({ dst }) => dst.ip.family === family));
    },
    removeDefaults(ifnames, families) {
      for (const route of defaultsOf(socket(), ifnames)) {
        if (families.includes(route.dst.ip.family)) removeRoute(socket(), route);
      }
    },
    addDefaults(ifname, gateways) {
      const link = findLink(socket(), ifname);
      if (link === undefined)
        throw new Error(`Cannot add a default route to "${ifname}": there is no such interface`);
      for (const gateway of gateways)
        addRoute(socket(), { dst: parseCidr(ANYWHERE[gateway.family]), gateway, oif: link.index });
    },
  };
}

/** IPv6 merges routes of the same metric into one: each of its next hops on the interfaces becomes a route here. */
function defaultsOf(socket: NetlinkSocket, ifnames: readonly string[]): Route[] {
  const indexes = ifnames.flatMap(name => findLink(socket, name)?.index ?? []);
  const defaults = listRoutes(socket).filter(({ dst, table }) => dst.prefix === 0 && table === RT_TABLE_MAIN);
  return defaults.flatMap(route => {
    const { ways, ...rest } = route;
    if (ways === undefined) return indexes.includes(route.oif) ? [route] : [];
    const own = ways.filter(({ oif }) => indexes.includes(oif));
    if (own.length === ways.length) return [route];
    return own.map(({ oif, gateway }) => ({ ...rest, oif, gateway }));
  });
}
