// How are the default routes of a container read and changed?
import { invalidConfig } from '../../src/cni/errors.ts';
import type { ContainerRoutes } from '../../src/delegate/runner.ts';
import {
  ANYWHERE,
  cidrContains,
  FAMILIES,
  type Ip,
  parseCidr,
  renderCidr,
  renderIp,
} from '../../src/net/ip.ts';
import { listAddresses } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import {
  addRoute,
  isUnreached,
  leavesBy,
  listRoutesByDevice,
  type Route,
  RT_TABLE_MAIN,
  RTPROT_ASKED,
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
      for (const gateway of gateways) addDefault(socket(), link, gateway);
    },
  };
}

/**
 * Adds a default route. Source-based routing may have moved the route to the gateway out of the main table.
 * @throws CniError 7 for a gateway that is in no subnet of the interface
 */
function addDefault(socket: NetlinkSocket, { index, name }: Link, gateway: Ip): void {
  const dst = parseCidr(ANYWHERE[gateway.family]);
  const route = { dst, gateway, oif: index, protocol: RTPROT_ASKED };
  try {
    addRoute(socket, route);
  } catch (thrown) {
    if (!isUnreached(thrown)) throw thrown;
    refuseBeyond(socket, { index, name }, gateway);
    addRoute(socket, { ...route, onlink: true });
  }
}

function refuseBeyond(
  socket: NetlinkSocket,
  { index, name }: Pick<Link, 'index' | 'name'>,
  gateway: Ip,
): void {
  const subnets = listAddresses(socket, index).map(({ cidr }) => cidr);
  if (subnets.some(subnet => cidrContains(subnet, gateway))) return;
  const found = subnets.map(renderCidr).join(', ') || 'none';
  throw invalidConfig(
    `Cannot give the default route to "${name}": its "default-route" names ${renderIp(gateway)}, which is in no subnet of its addresses (${found})`,
  );
}

function defaultsOf(socket: NetlinkSocket, ifnames: readonly string[]): Route[] {
  const indexes = ifnames.flatMap(name => findLink(socket, name)?.index ?? []);
  return listRoutesByDevice(socket).filter(
    route =>
      route.dst.prefix === 0 &&
      route.table === RT_TABLE_MAIN &&
      indexes.some(index => leavesBy(route, index)),
  );
}
