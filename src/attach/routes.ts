// How do the planned routes of an interface get into the kernel, and do they still exist?
import { networkOf, renderCidr } from '../net/cidr.ts';
import { type Ip, renderIp, sameIp } from '../net/ip.ts';
import { NetlinkError } from '../netlink/errors.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import {
  addRouteRequest,
  listRoutes,
  prependRoute,
  type Route,
  RT_TABLE_MAIN,
} from '../netlink/rtnl/route.ts';
import type { NetlinkSocket, Request } from '../netlink/socket.ts';
import { confirm } from '../plugin/confirm.ts';
import { Errno } from '../sys/errno.ts';
import type { PlannedRoute } from './addressing.ts';

/**
 * Adds the routes with the interface as their output; routes that already exist are ignored. A route to the same destination
 * through another interface is kept, and this one is placed before it, as in the reference.
 * @param first requests to send before the routes, in the same batch
 */
export function addRoutes(
  socket: NetlinkSocket,
  { index }: Pick<Link, 'index'>,
  routes: readonly PlannedRoute[],
  first: readonly Request[] = [],
): void {
  const merged = mergeWays(routes, index);
  const outcomes = socket.attemptAll([...first, ...merged.map(addRouteRequest)]);
  let mended = false;
  for (const [i, outcome] of outcomes.entries()) {
    if (!(outcome instanceof NetlinkError)) continue;
    const route = merged[i - first.length];
    // A route may use a gateway reached by an earlier one that did not exist yet.
    if (!route || !(mended || outcome.errno === Errno.EEXIST)) throw outcome;
    if (outcome.errno === Errno.EEXIST) comeBefore(socket, index, route);
    else addRoutes(socket, { index }, [route]);
    mended = true;
  }
}

/** The kernel has already made the subnet's own route, and IPAM may list a route twice. */
function comeBefore(socket: NetlinkSocket, index: number, route: Route): void {
  const isMade = listRoutes(socket).some(one => leavesBy(one, index) && isSamePlace(one, route));
  if (!isMade) prependRoute(socket, route);
}

/** @throws Error naming the first route that is missing from the interface, in any table */
export function checkRoutes(socket: NetlinkSocket, link: Link, wanted: readonly PlannedRoute[]): void {
  const present = listRoutes(socket).filter(route => leavesBy(route, link.index));
  for (const route of wanted) {
    if (present.some(one => isSameRoute(one, route))) continue;
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
    const key = `${renderIp(networkOf(dst))}/${dst.prefix} ${table} ${priority}`;
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
    sameIp(networkOf(found.dst), networkOf(wanted.dst)) &&
    found.dst.prefix === wanted.dst.prefix &&
    found.table === (wanted.table || RT_TABLE_MAIN) &&
    (!wanted.priority || found.priority === wanted.priority)
  );
}

/** Ignores attributes that the plan does not specify. */
function isSameRoute(found: Route, wanted: PlannedRoute): boolean {
  const network = networkOf(wanted.dst);
  if (!sameIp(networkOf(found.dst), network) || found.dst.prefix !== wanted.dst.prefix) return false;
  // A later plugin, such as sbr, may have moved it.
  if (wanted.table && wanted.table !== found.table) return false;
  const gateways = [found.gateway, ...(found.ways ?? []).map(({ gateway }) => gateway)];
  if (wanted.gateway && !gateways.some(gateway => sameGateway(gateway, wanted.gateway))) return false;
  if (wanted.source && !sameGateway(found.source, wanted.source)) return false;
  // IPv6 has no scopes.
  if (wanted.scope && network.family === 4 && wanted.scope !== found.scope) return false;
  const numbers = ['priority', 'mtu', 'advmss'] as const;
  return numbers.every(key => !wanted[key] || wanted[key] === found[key]);
}

function sameGateway(a: Ip | undefined, b: Ip | undefined): boolean {
  return a === undefined || b === undefined ? a === b : sameIp(a, b);
}

function renderRoute(route: PlannedRoute): string {
  const { dst, gateway, ways, source, priority, table, scope, mtu, advmss } = route;
  const via = [gateway, ...(ways ?? []).map(way => way.gateway)].flatMap(ip => (ip ? renderIp(ip) : []));
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
