// Which table does a new VRF get, and which routes go with an interface? Nothing is changed here.
import { type PlannedRoute, planRoute } from '../../src/attach/addressing.ts';
import { type Result, spreadGateways } from '../../src/cni/result.ts';
import { type Cidr, findIp, networkOf, parseCidr, renderCidr } from '../../src/net/ip.ts';
import { type Address, RT_SCOPE_UNIVERSE } from '../../src/netlink/rtnl/addr.ts';
import { type Route, RT_TABLE_MAIN, routeThrough } from '../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../src/netlink/rtnl/rule.ts';
import { RESERVED_TABLES } from './config.ts';

/** linux/rtnetlink.h: routes that the kernel adds and deletes with an address */
const RTPROT_KERNEL = 2;
const RT_TABLE_LOCAL = 255;
const LINK_LOCAL = parseCidr('fe80::/64');

/** What uses tables in a namespace. */
interface TableUse {
  /** Tables of its VRFs. */
  readonly vrfs: readonly number[];
  readonly rules: readonly Pick<Rule, 'table'>[];
  readonly routes: readonly Pick<Route, 'table'>[];
}

/** The lowest table that no VRF, rule or route of either family mentions, and that is not one of the kernel's. */
export function freeTable({ vrfs, rules, routes }: TableUse): number {
  const used = new Set([...RESERVED_TABLES, ...vrfs, ...[...rules, ...routes].map(({ table = 0 }) => table)]);
  let table = 1;
  while (used.has(table)) table++;
  return table;
}

/** What the kernel deletes when an interface joins or leaves a VRF. */
export interface Belongings {
  /** Global addresses; the kernel makes the link-local one again. */
  readonly addresses: readonly Address[];
  /** The interface's own part of its routes, in the order in which they can be added. */
  readonly routes: readonly Route[];
  /** Destinations of the routes that the kernel had made for its addresses. */
  readonly onLink: readonly Cidr[];
}

/**
 * Collects what belongs to an interface.
 * @param index the interface
 * @param from the table that it is in
 */
export function belongingsOf(
  index: number,
  from: number,
  addresses: readonly Address[],
  routes: readonly Route[],
): Belongings {
  const own = routes
    .flatMap(route => routeThrough(route, index) ?? [])
    .filter(({ table }) => table !== RT_TABLE_LOCAL);
  const isMade = (route: Route) => (route.table ?? RT_TABLE_MAIN) === from && isKernels(route);
  return {
    addresses: addresses.filter(({ scope }) => scope === RT_SCOPE_UNIVERSE),
    routes: own
      .filter(route => !isMade(route))
      .sort((a, b) => Number(isGatewayed(a)) - Number(isGatewayed(b))),
    onLink: own.filter(isMade).map(({ dst }) => dst),
  };
}

/** The routes as they are to be in the new table; those of other tables stay in these. */
export function movedRoutes(
  { routes }: Pick<Belongings, 'routes'>,
  from: number,
  to: number,
): PlannedRoute[] {
  return routes.map(route => ({
    ...route,
    table: (route.table ?? RT_TABLE_MAIN) === from ? to : route.table,
  }));
}

/**
 * Routes that the kernel made in the table although a plugin had removed them: ptp's pods reach their subnet through the gateway.
 */
export function needlessRoutes(
  index: number,
  table: number,
  present: readonly Route[],
  { onLink }: Belongings,
): Route[] {
  const known = new Set(onLink.map(keyOf));
  return present.filter(route => {
    const isMade = route.oif === index && route.table === table && isKernels(route);
    return isMade && !known.has(keyOf(route.dst)) && keyOf(route.dst) !== keyOf(LINK_LOCAL);
  });
}

/** The routes of the interface that an earlier plugin reported, as they are to be in the VRF's table. */
export function reportedRoutes(result: Result, table: number): PlannedRoute[] {
  const ips = (result.ips ?? []).map(({ address, gateway }) => ({
    cidr: parseCidr(address),
    gateway: findIp(gateway ?? ''),
  }));
  return spreadGateways(result.routes ?? [])
    .filter(route => !route.table || route.table === RT_TABLE_MAIN)
    .map(route => ({ ...planRoute(route, ips), table }));
}

/** The addresses of the interface in the result; those that name no interface may be its own. */
export function reportedAddresses(result: Result, ifname: string): Cidr[] {
  return (result.ips ?? []).flatMap(({ address, interface: index }) => {
    const link = index === undefined ? undefined : result.interfaces?.[index];
    return link !== undefined && (link.name !== ifname || !link.sandbox) ? [] : [parseCidr(address)];
  });
}

function isKernels({ protocol }: Route): boolean {
  return protocol === RTPROT_KERNEL;
}

function isGatewayed({ gateway, ways = [] }: Route): boolean {
  return gateway !== undefined || ways.some(way => way.gateway !== undefined);
}

function keyOf({ ip, prefix }: Cidr): string {
  return renderCidr({ ip: networkOf({ ip, prefix }), prefix });
}
