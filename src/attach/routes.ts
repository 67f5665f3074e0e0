// How do the planned routes of an interface get into the kernel, and are they still there?
import { networkOf, renderCidr } from '../net/cidr.ts';
import { type Ip, renderIp, sameIp } from '../net/ip.ts';
import { NetlinkError } from '../netlink/errors.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import { addRouteRequest, listRoutes, prependRoute, type Route } from '../netlink/rtnl/route.ts';
import type { NetlinkSocket, Request } from '../netlink/socket.ts';
import { confirm } from '../plugin/confirm.ts';
import { Errno } from '../sys/errno.ts';
import type { PlannedRoute } from './addressing.ts';

/** linux/rtnetlink.h */
const RT_TABLE_MAIN = 254;

/**
 * Adds the routes, out by the interface; those that exist are fine. A route to the same place by another interface stays,
 * and this one comes before it, as with the reference.
 * @param first what has to be done before, sent together with them
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
    // A route may lead through one before it that was not there yet.
    if (!route || !(mended || outcome.errno === Errno.EEXIST)) throw outcome;
    if (outcome.errno === Errno.EEXIST) comeBefore(socket, index, route);
    else addRoutes(socket, { index }, [route]);
    mended = true;
  }
}

/** The kernel has made the subnet's own route already, and IPAM may list one twice. */
function comeBefore(socket: NetlinkSocket, index: number, route: Route): void {
  const isMade = listRoutes(socket).some(one => leavesBy(one, index) && isSamePlace(one, route));
  if (!isMade) prependRoute(socket, route);
}

/** @throws Error naming the first route that the interface lacks, in whatever table */
export function checkRoutes(socket: NetlinkSocket, link: Link, wanted: readonly PlannedRoute[]): void {
  const present = listRoutes(socket).filter(route => leavesBy(route, link.index));
  for (const route of wanted) {
    if (present.some(one => isSameRoute(one, route))) continue;
    confirm(`routes of "${link.name}"`, renderRoute(route), present.map(renderRoute));
  }
}

/**
 * Several gateways for one destination become one route that spreads traffic over them. The reference makes routes
 * that compete, of which IPv4 uses one.
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

/** IPv6 makes one route of those that have the same destination and metric. */
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

/** What the plan says nothing of may be anything. */
function isSameRoute(found: Route, wanted: PlannedRoute): boolean {
  const network = networkOf(wanted.dst);
  if (!sameIp(networkOf(found.dst), network) || found.dst.prefix !== wanted.dst.prefix) return false;
  // A later link, such as sbr, may have moved it.
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
