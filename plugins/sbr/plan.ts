// Which routes belong in the table of each address? Nothing is changed here.
import { reportedRoutes } from '../../src/attach/addressing.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import { ipsFor, type Result } from '../../src/cni/result.ts';
import {
  type Cidr,
  cidrContains,
  findCidr,
  findIp,
  hostCidr,
  IP_BITS,
  type Ip,
  parseCidr,
  sameIp,
  sameSubnet,
  subnetKey,
  subnetOf,
} from '../../src/net/ip.ts';
import { RT_SCOPE_LINK } from '../../src/netlink/rtnl/addr.ts';
import {
  IP6_RT_PRIO_ADDRCONF,
  isGatewayed,
  RESERVED_TABLES,
  type Route,
  RT_TABLE_MAIN,
  RTPROT_ASKED,
} from '../../src/netlink/rtnl/route.ts';
import { isBySource, type Rule, type SourceRule } from '../../src/netlink/rtnl/rule.ts';
import type { SbrOptions } from './config.ts';

/** An address of the pod, and the gateway of its default route. */
export interface Source {
  readonly address: Cidr;
  readonly gateway?: Ip;
}

/** The rule of one address, and the routes for its table. */
interface SourcePlan {
  readonly rule: SourceRule;
  /** Whether the rule already exists. */
  readonly known: boolean;
  /** Ordered so that each gateway is reachable through the preceding routes. */
  readonly routes: readonly Route[];
}

/** What ADD does. */
export interface SbrPlan {
  readonly sources: readonly SourcePlan[];
  /** Routes to remove from the main table. */
  readonly leaving: readonly Route[];
  /** Routes of the main table that lack the pod's address as source. */
  readonly hinted: readonly Route[];
}

/**
 * Marks rules, which DEL finds so after their addresses have gone, and routes that we created, as opposed to moved: DEL does not put
 * these back. No other program uses this number, nor does the daemon for routes to other nodes: a node may be a pod itself.
 */
export const OWN_PROTOCOL = 69;
const LINK_LOCAL = parseCidr('fe80::/10');

/**
 * The addresses that may belong to this interface; those that name no interface may.
 * @throws CniError 7 when the result has no address at all
 */
export function sourcesOf(result: Result, ifname: string, { gateways }: SbrOptions): Source[] {
  if (!result.ips?.length) {
    throw invalidConfig(`Cannot route by source: "prevResult" has no addresses for "${ifname}"`);
  }
  const sources = ipsFor(result, ifname).flatMap(({ address, gateway: own }) => {
    const cidr = findCidr(address);
    if (cidr === undefined) return [];
    const gateway = gateways.find(({ family }) => family === cidr.ip.family) ?? findIp(own ?? '');
    return { address: cidr, ...defined({ gateway }) };
  });
  return sources.filter(
    ({ address }, i) => i === sources.findIndex(one => sameIp(one.address.ip, address.ip)),
  );
}

/** Rules and routes for every address, based on the current state; planning again finds the tables of the first time. */
export function planSbr(sources: readonly Source[], options: SbrOptions, present: Present): SbrPlan {
  const own = present.routes.filter(route => isMovable(route, present.index));
  const tables = freeTables(present);
  const addresses = sources.map(({ address }) => address);
  const plans = sources.map(source => {
    const from = hostCidr(source.address.ip);
    const [found] = sourceRules(present.rules, from, options.table);
    const known = found?.table ?? options.table ?? findLostTable(source.address, addresses, present);
    const table = known ?? tables.next().value;
    const settled = present.routes.filter(route => route.table === table && route.oif === present.index);
    const routes =
      options.table === undefined ? routesFor(source, sources, options, own, settled, present.index) : [];
    return {
      rule: { from, table, protocol: OWN_PROTOCOL, ...(found ? { priority: found.priority } : {}) },
      known: found !== undefined,
      routes: routes.map(route => ({ ...route, table })),
    };
  });
  if (options.table !== undefined) return { sources: plans, leaving: [], hinted: [] };
  const isOfOurs = ({ dst }: Route) => sources.some(({ address }) => address.ip.family === dst.ip.family);
  const leaving = own.filter(route => isOfOurs(route) && !isLinkLocal(route));
  if (!options.addSourceHints) return { sources: plans, leaving, hinted: [] };
  return {
    sources: plans,
    leaving: leaving.filter(isGatewayed),
    hinted: sources
      .flatMap(({ address }) => subnetRoute(address, present.index, true))
      .filter(route => !present.routes.some(one => isHinted(one, route))),
  };
}

function isHinted({ table, oif, source, dst }: Route, wanted: Route): boolean {
  const isPlace =
    (table ?? RT_TABLE_MAIN) === RT_TABLE_MAIN && oif === wanted.oif && sameSubnet(dst, wanted.dst);
  return isPlace && source !== undefined && wanted.source !== undefined && sameIp(source, wanted.source);
}

/**
 * The plan including the routes that ADD moved, as far as the result names them. For CHECK, which no longer finds them in the
 * main table.
 */
export function expectMoved(
  { sources: plans, ...rest }: SbrPlan,
  sources: readonly Source[],
  options: SbrOptions,
  { result, present: { index, routes } }: { readonly result: Result; readonly present: Present },
): SbrPlan {
  if (options.table !== undefined) return { sources: plans, ...rest };
  const asked = routes.filter(({ oif, protocol }) => oif === index && protocol === RTPROT_ASKED);
  const reported = reportedRoutes(result)
    .map(route => ({ ...route, oif: index }))
    .filter(route => !asked.some(one => sameDestination(one, route)));
  return {
    ...rest,
    sources: plans.map((plan, i) => {
      const source = sources[i];
      const planned = new Set(plan.routes.map(({ dst }) => subnetKey(dst)));
      const moved = reported.filter(route => {
        const isOwn = source && belongs(route, source, sources) && !isReplaced(route, options);
        return isOwn && !planned.has(subnetKey(route.dst));
      });
      return { ...plan, routes: [...plan.routes, ...moved] };
    }),
  };
}

/** Routes of the main table that use this interface and no other, but for a default route that the pod asked for. */
function isMovable({ table, oif, protocol, ways = [] }: Route, index: number): boolean {
  if (protocol === RTPROT_ASKED) return false;
  return (table ?? RT_TABLE_MAIN) === RT_TABLE_MAIN && oif === index && ways.every(way => way.oif === index);
}

function routesFor(
  source: Source,
  sources: readonly Source[],
  options: SbrOptions,
  own: readonly Route[],
  settled: readonly Route[],
  index: number,
): Route[] {
  const { address } = source;
  const { family } = address.ip;
  const isStatic = options.gateways.some(ip => ip.family === family);
  const copied = own.filter(route => belongs(route, source, sources) && !isReplaced(route, options));
  const isNew = (route: Route) => !copied.some(one => sameDestination(one, route));
  const isMoved = (route: Route) =>
    settled.some(one => one.protocol !== OWN_PROTOCOL && sameDestination(one, route));
  const subnet = subnetRoute(address, index, false).filter(route => isNew(route) && !isMoved(route));
  const way = defaultRoute(source, index).filter(route => isNew(route) && (isStatic || !isMoved(route)));
  const onPlugin = copied.filter(route => !isGatewayed(route));
  return [...onPlugin, ...subnet.map(asOwn), ...copied.filter(isGatewayed), ...way.map(asOwn)];
}

/**
 * Whether a route belongs in the table of an address: its source or gateway is in the address's subnet, or in that of no address;
 * without either, unless its destination is the subnet of another address.
 */
function belongs(route: Route, { address }: Source, sources: readonly Source[]): boolean {
  if (route.dst.ip.family !== address.ip.family) return false;
  const gateways = [route.gateway, ...(route.ways ?? []).map(way => way.gateway)];
  const hints = [route.source, ...gateways].filter(ip => ip !== undefined);
  if (hints.some(ip => cidrContains(address, ip))) return true;
  const others = sources.filter(one => one.address !== address);
  if (hints.length > 0) return !others.some(other => hints.some(ip => cidrContains(other.address, ip)));
  return !others.some(other => sameSubnet(route.dst, other.address)) || sameSubnet(route.dst, address);
}

/** The route that the kernel adds for an address; an address with a full-length prefix has none. */
function subnetRoute(address: Cidr, oif: number, hint: boolean): Route[] {
  const { family } = address.ip;
  if (address.prefix === IP_BITS[family]) return [];
  const route = { dst: subnetOf(address), oif };
  if (family === 4) return [{ ...route, source: address.ip, scope: RT_SCOPE_LINK }];
  return [{ ...route, priority: IP6_RT_PRIO_ADDRCONF, ...(hint ? { source: address.ip } : {}) }];
}

/** A configured gateway takes precedence over the one that an earlier plugin chose. */
function isReplaced(route: Route, { gateways }: SbrOptions): boolean {
  return route.dst.prefix === 0 && gateways.some(({ family }) => family === route.dst.ip.family);
}

function defaultRoute({ address: { ip }, gateway }: Source, oif: number): Route[] {
  return gateway ? [{ dst: { ip: { family: ip.family, value: 0n }, prefix: 0 }, gateway, oif }] : [];
}

function asOwn(route: Route): Route {
  return { ...route, protocol: OWN_PROTOCOL };
}

/** The kernel replies to its neighbours through these; they belong to the interface, not to an address. */
function isLinkLocal({ dst }: Route): boolean {
  return dst.prefix >= LINK_LOCAL.prefix && cidrContains(LINK_LOCAL, dst.ip);
}

function sameDestination(a: Route, b: Route): boolean {
  return sameSubnet(a.dst, b.dst);
}

export interface Present {
  readonly index: number;
  readonly rules: readonly Rule[];
  /** Those of IPv6 lead through one device each. */
  readonly routes: readonly Route[];
  /** Tables of VRFs, and of routes that lead nowhere; asked for only when a table is chosen. */
  otherTables(): readonly number[];
}

const FIRST_TABLE = 100;

/** Rules of the address: ours, or where there is none those that the reference may have made. */
export function sourceRules(rules: readonly Rule[], from: Cidr, table: number | undefined): Rule[] {
  const all = rules.filter(rule => isSourceRule(rule, from, table));
  const own = all.filter(({ protocol }) => protocol === OWN_PROTOCOL);
  return own.length ? own : all;
}

/**
 * Whether a rule is for the address: it has no other selector, refers to the table, or to any of ours, and no other program says that it
 * made the rule.
 */
export function isSourceRule(rule: Rule, from: Cidr, table: number | undefined): boolean {
  if (!rule.from || rule.from.prefix !== from.prefix || !sameIp(rule.from.ip, from.ip)) return false;
  if (!isBySource(rule)) return false;
  if (rule.protocol && rule.protocol !== OWN_PROTOCOL) return false;
  return table === undefined
    ? rule.table >= FIRST_TABLE && !RESERVED_TABLES.includes(rule.table)
    : rule.table === table;
}

/** Tables that no rule, VRF or route of either family has. */
function* freeTables({ rules, routes, otherTables }: Present): Generator<number, never> {
  const used = new Set([...rules, ...routes].map(({ table }) => table ?? RT_TABLE_MAIN));
  for (const table of otherTables()) used.add(table);
  for (let table = FIRST_TABLE; ; table++) {
    if (!used.has(table) && !RESERVED_TABLES.includes(table)) yield table;
  }
}

/**
 * The table that an address had before its rule was deleted: one that no rule refers to, whose routes all use this interface and
 * include that of the address's subnet, which with ptp leads through the gateway. Two addresses of one subnet cannot be distinguished.
 */
function findLostTable(address: Cidr, all: readonly Cidr[], present: Present): number | undefined {
  if (all.some(other => other !== address && sameSubnet(other, address))) return undefined;
  const { index, rules, routes } = present;
  const led = new Set(rules.map(({ table }) => table));
  const isLost = (table: number) =>
    table >= FIRST_TABLE &&
    !RESERVED_TABLES.includes(table) &&
    !led.has(table) &&
    routes.every(route => route.table !== table || route.oif === index);
  return routes.find(({ table = RT_TABLE_MAIN, dst }) => sameSubnet(dst, address) && isLost(table))?.table;
}
