// How do the planned routes of an interface get into the kernel, and do they still exist?

import { bySubnet, renderCidr, subnetKey } from '../net/cidr.ts';
import { IP_BITS, type Ip, renderIp, sameIp } from '../net/ip.ts';
import type { Request } from '../netlink/codec.ts';
import { RT_SCOPE_LINK } from '../netlink/rtnl/addr.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import {
  addRoute,
  addRouteRequest,
  listRoutes,
  prependRoute,
  type Route,
  RT_TABLE_MAIN,
  removeRoute,
} from '../netlink/rtnl/route.ts';
import { isNetlinkError, NetlinkError, type NetlinkSocket } from '../netlink/socket.ts';
import { confirm } from '../plugin/confirm.ts';
import { Errno } from '../sys/errno.ts';
import type { PlannedRoute } from './addressing.ts';

/**
 * Adds the routes with the interface as their output; routes that already exist are ignored. A route to the same destination
 * through another interface is kept, and this one is placed before it, as in the reference. Routes without a gateway come first, since
 * they lead to gateways, and a gateway that none leads to is on the link itself: providers and DHCP servers give hosts a gateway outside
 * of their subnet.
 * @param first requests to send before the routes, in the same batch
 */
export function addRoutes(
  socket: NetlinkSocket,
  { index }: Pick<Link, 'index'>,
  routes: readonly PlannedRoute[],
  first: readonly Request[] = [],
): void {
  const merged = mergeWays(routes, index);
  const ordered = [...merged.filter(one => !hasGateway(one)), ...merged.filter(hasGateway)];
  const outcomes = socket.attemptAll([...first, ...ordered.map(addRouteRequest)]);
  for (const [i, outcome] of outcomes.entries()) {
    if (!(outcome instanceof NetlinkError)) continue;
    const route = ordered[i - first.length];
    if (route && outcome.errno === Errno.EEXIST) comeBefore(socket, index, route);
    else if (route && isUnreached(outcome))
      reachingGateway(socket, route, () => addOne(socket, index, route));
    else throw outcome;
  }
}

function addOne(socket: NetlinkSocket, index: number, route: Route): void {
  try {
    addRoute(socket, route);
  } catch (thrown) {
    if (!isNetlinkError(thrown, Errno.EEXIST)) throw thrown;
    comeBefore(socket, index, route);
  }
}

/**
 * Adds a route whose gateway may be outside of the subnets that the interface has: such a gateway is on the link.
 * @param add adds the route
 * @returns the routes to gateways that this took
 */
export function reachingGateway(socket: NetlinkSocket, route: Route, add: () => void): Route[] {
  try {
    add();
    return [];
  } catch (thrown) {
    if (!(thrown instanceof NetlinkError && isUnreached(thrown))) throw thrown;
    const { oif, table } = route;
    const ways = gatewaysOf(route).map((ip): Route => {
      return { dst: { ip, prefix: IP_BITS[ip.family] }, oif, table, scope: RT_SCOPE_LINK };
    });
    // What the kernel refuses here makes it refuse the route again.
    socket.attemptAll(ways.map(addRouteRequest));
    add();
    return ways;
  }
}

/** net/ipv4/fib_semantics.c and net/ipv6/route.c refuse a gateway to which no route leads with one of these each. */
function isUnreached({ errno }: NetlinkError): boolean {
  return errno === Errno.ENETUNREACH || errno === Errno.EHOSTUNREACH;
}

function hasGateway(route: Route): boolean {
  return gatewaysOf(route).length > 0;
}

function gatewaysOf({ gateway, ways = [] }: Pick<Route, 'gateway' | 'ways'>): Ip[] {
  return [gateway, ...ways.map(way => way.gateway)].filter(ip => ip !== undefined);
}

/** The kernel has already made the subnet's own route, and IPAM may list a route twice. */
function comeBefore(socket: NetlinkSocket, index: number, route: Route): void {
  const isMade = listRoutes(socket).some(one => leavesBy(one, index) && isSamePlace(one, route));
  if (!isMade) prependRoute(socket, route);
}

/** Puts routes back that others removed or gave another gateway. The interface's own routes to other places stay. */
export function putRoutesRight(socket: NetlinkSocket, link: Link, routes: readonly PlannedRoute[]): void {
  const isWrong = (found: Route): boolean => {
    const planned = routes.filter(one => isSamePlace(found, { ...one, oif: link.index }));
    return planned.length > 0 && !planned.some(one => isSameRoute(found, one));
  };
  for (const found of listRoutes(socket))
    if (found.oif === link.index && hasGateway(found) && isWrong(found)) removeRoute(socket, found);
  addRoutes(socket, link, routes);
}

/** @throws Error naming the first route that is missing from the interface, in any table */
export function checkRoutes(socket: NetlinkSocket, link: Link, wanted: readonly PlannedRoute[]): void {
  const present = listRoutes(socket).filter(route => leavesBy(route, link.index));
  const presentTo = bySubnet(present);
  for (const route of wanted) {
    if (presentTo(route.dst).some(one => isSameRoute(one, route))) continue;
    confirm(`routes of "${link.name}"`, renderRoute(route), present.map(renderRoute));
  }
}

/**
 * Merges several gateways for one destination into one multipath route. The reference makes competing routes, of which IPv4
 * uses only one.
 */
export function mergeWays(routes: readonly PlannedRoute[], oif: number): Route[] {
  const byDestination = new Map<string, PlannedRoute[]>();
  for (const route of routes) {
    const { dst, table = RT_TABLE_MAIN, priority = 0 } = route;
    const key = `${subnetKey(dst)} ${table} ${priority}`;
    const group = byDestination.get(key) ?? [];
    byDestination.set(key, group);
    if (!group.some(one => sameGateway(one.gateway, route.gateway))) group.push(route);
  }
  return [...byDestination.values()].flatMap(group => {
    const [first] = group;
    if (first === undefined || group.length === 1 || group.some(({ gateway }) => gateway === undefined)) {
      return group.map(route => ({ ...route, oif }));
    }
    const { gateway: _, ...rest } = first;
    return { ...rest, oif, ways: group.map(({ gateway }) => ({ gateway, oif })) };
  });
}

/** IPv6 merges routes with the same destination and metric into one. */
function leavesBy({ oif, ways }: Route, index: number): boolean {
  return oif === index || (ways?.some(way => way.oif === index) ?? false);
}

function isSamePlace(found: Route, wanted: Route): boolean {
  return (
    subnetKey(found.dst) === subnetKey(wanted.dst) &&
    found.table === (wanted.table || RT_TABLE_MAIN) &&
    (!wanted.priority || found.priority === wanted.priority)
  );
}

/** Compares two of one destination. Ignores attributes that the plan does not specify. */
function isSameRoute(found: Route, wanted: PlannedRoute): boolean {
  // A later plugin, such as sbr, may have moved it.
  if (wanted.table && wanted.table !== found.table) return false;
  if (wanted.gateway && !gatewaysOf(found).some(gateway => sameGateway(gateway, wanted.gateway)))
    return false;
  if (wanted.source && !sameGateway(found.source, wanted.source)) return false;
  // IPv6 has no scopes.
  if (wanted.scope && wanted.dst.ip.family === 4 && wanted.scope !== found.scope) return false;
  const numbers = ['priority', 'mtu', 'advmss'] as const;
  return numbers.every(key => !wanted[key] || wanted[key] === found[key]);
}

function sameGateway(a: Ip | undefined, b: Ip | undefined): boolean {
  return a === undefined || b === undefined ? a === b : sameIp(a, b);
}

function renderRoute(route: Omit<Route, 'oif'>): string {
  const { dst, source, priority, table, scope, mtu, advmss } = route;
  const via = gatewaysOf(route).map(renderIp);
  return [
    renderCidr(dst),
    ...via.map(ip => `via ${ip}`),
    ...(source ? [`src ${renderIp(source)}`] : []),
    ...(table && table !== RT_TABLE_MAIN ? [`table ${table}`] : []),
    ...(scope ? [`scope ${scope}`] : []),
    ...(priority ? [`metric ${priority}`] : []),
    ...(mtu ? [`mtu ${mtu}`] : []),
    ...(advmss ? [`advmss ${advmss}`] : []),
  ].join(' ');
}
