// How are routes added, listed and removed, and where would the kernel send a packet?

import { type Cidr, IP_BITS, type Ip, networkOf, renderCidr, renderIp } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import {
  align4,
  attrs,
  bytes,
  type Field,
  ip,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  type RawAttribute,
  type Request,
  s32,
  struct,
  u8,
  u16,
  u32,
} from '../codec.ts';
import { isNetlinkError, NetlinkError, type NetlinkSocket, type Question, tolerating } from '../socket.ts';
import { AF, messages } from './message.ts';

/** linux/rtnetlink.h: the gateway is on the link, whatever the addresses say. The kernel refuses most other flags of its own. */
const RTNH_F_ONLINK = 4;
/** linux/rtnetlink.h: the reply is the route itself, not what came of it for one packet. */
const RTM_F_FIB_MATCH = 0x2000;
/** Without it, the kernel says of each route of IPv4 that it is in the main table; for IPv6 it refuses the flag. */
const RTM_F_LOOKUP_TABLE = 0x1000;

interface Nexthop {
  readonly gateway?: Ip | undefined;
  /** Index of the outgoing interface. */
  readonly oif: number;
  readonly onlink?: boolean | undefined;
  /** Its share of the traffic, less one. */
  readonly hops?: number | undefined;
  /** Further attributes that the kernel told, as they are. */
  readonly unknown?: readonly RawAttribute[] | undefined;
}

/** RTA_VIA: a gateway of the other family. linux/rtnetlink.h: struct rtvia { __kernel_sa_family_t rtvia_family; __u8 rtvia_addr[]; } */
const via: Field<Ip> = {
  encode(writer, gateway) {
    writer.u16(AF[gateway.family]);
    ip.encode(writer, gateway, {});
  },
  decode: bytes => ip.decode(bytes.subarray(2), {}),
};

function gatewayOf(family: Ip['family'] | undefined, gateway: Ip | undefined): { gateway?: Ip; via?: Ip } {
  if (gateway === undefined) return {};
  return family === undefined || gateway.family === family ? { gateway } : { via: gateway };
}

/** linux/rtnetlink.h */
export const rtnexthop = struct('rtnexthop', { length: u16, flags: u8, hops: u8, oif: s32 });

/** linux/rtnetlink.h, RTA_*: the attributes that a next hop may have */
const nexthopAttrs = attrs('next hop', { gateway: [5, ip], via: [18, via] });

/** RTA_MULTIPATH: structs rtnexthop, each followed by attributes of its own. */
const nexthops: Field<readonly Nexthop[]> = {
  encode(writer, ways, route) {
    const { dst } = route as { readonly dst?: Ip };
    for (const { gateway, oif, onlink, hops = 0, unknown = [] } of ways) {
      const start = writer.length;
      rtnexthop.encode(writer, { oif, hops, flags: onlink ? RTNH_F_ONLINK : 0 });
      nexthopAttrs.encode(writer, { ...gatewayOf(dst?.family, gateway), unknown: [...unknown] }, {});
      writer.patchU16(start, writer.length - start);
    }
  },
  decode(bytes) {
    const ways: Nexthop[] = [];
    for (let at = 0; at < bytes.length; ) {
      const { length, oif, flags, hops } = rtnexthop.decode(bytes.subarray(at));
      if (length < rtnexthop.size || at + length > bytes.length) {
        throw new Error(`next hop at byte ${at} claims ${length} of ${bytes.length - at} bytes`);
      }
      const own = nexthopAttrs.decode(bytes.subarray(at + rtnexthop.size, at + length), {});
      ways.push({
        gateway: own.gateway ?? own.via,
        oif,
        ...(flags & RTNH_F_ONLINK ? { onlink: true } : {}),
        ...(hops ? { hops } : {}),
        ...(own.unknown ? { unknown: own.unknown } : {}),
      });
      at += align4(length);
    }
    return ways;
  },
};

/** linux/ipv6_route.h: the metric of routes that the kernel makes with an address of IPv6. */
export const IP6_RT_PRIO_ADDRCONF = 256;

/** linux/rtnetlink.h */
const RT_TABLE_DEFAULT = 253;
export const RT_TABLE_MAIN = 254;
export const RT_TABLE_LOCAL = 255;
const RTPROT_UNSPEC = 0;
/** Routes that the kernel adds and deletes with an address, and those that routers advertise. */
export const RTPROT_KERNEL = 2;
export const RTPROT_RA = 9;
const RTPROT_BOOT = 3;
/** Default routes that a pod asks for, which stay in the main table wherever others of the interface go. No other program uses this number. */
export const RTPROT_ASKED = 68;
const RTN_UNICAST = 1;
const RTN_UNREACHABLE = 7;

export const RESERVED_TABLES: readonly number[] = [RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL];

/** Why routes of a configuration cannot go to a table; undefined if they can. 0 stands for none, as in the reference. */
export function findTableProblem(table: number): string | undefined {
  return table < 0 || table > 0xffffffff || RESERVED_TABLES.includes(table)
    ? "expected 1 to 4294967295, except 253, 254 and 255, which are the kernel's"
    : undefined;
}

/** The next hops of a route, one or several. IPv6 merges routes with the same destination and metric into one, of several devices. */
export function waysOf({ oif, gateway, ways }: Pick<Route, 'oif' | 'gateway' | 'ways'>): readonly Nexthop[] {
  return ways ?? [{ oif, gateway }];
}

export function leavesBy(route: Route, index: number): boolean {
  return waysOf(route).some(way => way.oif === index);
}

/** Whether a route needs another one to reach its gateway. */
export function isGatewayed({ gateway, ways = [] }: Pick<Route, 'gateway' | 'ways'>): boolean {
  return gateway !== undefined || ways.some(way => way.gateway !== undefined);
}

/** Whether a route was refused because none leads to its gateway: net/ipv4/fib_semantics.c and net/ipv6/route.c say so with one of these each. */
export function isUnreached(thrown: unknown): boolean {
  return isNetlinkError(thrown, Errno.ENETUNREACH, Errno.EHOSTUNREACH);
}

/** Routes without a gateway first: gateways of the others are reached through them. */
export function inOrder<R extends Pick<Route, 'gateway' | 'ways'>>(routes: readonly R[]): R[] {
  return [...routes].sort((a, b) => Number(isGatewayed(a)) - Number(isGatewayed(b)));
}

/** linux/rtnetlink.h */
export const rtmsg = struct('rtmsg', {
  family: u8,
  dstLength: u8,
  srcLength: u8,
  tos: u8,
  table: u8,
  protocol: u8,
  scope: u8,
  type: u8,
  flags: u32,
});

/** linux/rtnetlink.h, RTAX_* */
const metrics = attrs('route metrics', { mtu: [2, u32], advmss: [8, u32] });

/** linux/rtnetlink.h, RTA_* */
const routeAttrs = attrs('route', {
  dst: [1, ip],
  src: [2, ip],
  iif: [3, u32],
  oif: [4, u32],
  gateway: [5, ip],
  priority: [6, u32],
  prefsrc: [7, ip],
  metrics: [8, metrics],
  multipath: [9, nexthops],
  cacheinfo: [12, bytes],
  table: [15, u32],
  via: [18, via],
  nhId: [30, u32],
});

export const routeMessage = messages('ROUTE', rtmsg, routeAttrs);

type RouteMessage = ReturnType<typeof routeMessage.decode>;

/** A route of one type, unicast unless given. Encoding a listed one again loses nothing of it. */
export interface Route {
  /** RTN_* of linux/rtnetlink.h. */
  readonly type?: number | undefined;
  /** Destination; prefix 0 is the default route. */
  readonly dst: Cidr;
  /** IPv4 may have a gateway of IPv6. */
  readonly gateway?: Ip | undefined;
  /** The gateway is on the link, whatever the addresses say. */
  readonly onlink?: boolean | undefined;
  /** Index of the outgoing interface. */
  readonly oif: number;
  /** Several next hops instead of `gateway`; traffic is spread over them. */
  readonly ways?: readonly Nexthop[] | undefined;
  /** Preferred source address for packets that have none yet. */
  readonly source?: Ip | undefined;
  /** Main (254) unless given. */
  readonly table?: number | undefined;
  readonly scope?: number | undefined;
  readonly priority?: number | undefined;
  readonly mtu?: number | undefined;
  readonly advmss?: number | undefined;
  /** Origin of the route, as RTPROT_* or a private number; 3 (`boot`, as in `ip`) unless given. */
  readonly protocol?: number | undefined;
  readonly tos?: number | undefined;
  /** Packets from these addresses only; IPv6. */
  readonly from?: Cidr | undefined;
  /** Attributes and metrics without a name here, as the kernel told them: the preference, the first congestion window. */
  readonly others?:
    | { readonly route: readonly RawAttribute[]; readonly metrics: readonly RawAttribute[] }
    | undefined;
}

/** A route of one origin: to a gateway, or one that says that there is none. */
export interface OriginRoute {
  readonly dst: Cidr;
  /** Undefined: the route refuses packets as unreachable. */
  readonly via: { readonly oif: number; readonly gateway: Ip; readonly onlink: boolean } | undefined;
  readonly table: number;
  readonly priority: number;
  readonly protocol: number;
}

/**
 * Adds a route; EEXIST when it exists already.
 * Same as: `ip route add <dst> [via <gateway>] dev <oif> [src <source>] [table <table>] [metric <priority>]`
 */
export function addRoute(socket: NetlinkSocket, route: Route): void {
  socket.request(addRouteRequest(route));
}

export function addRouteRequest(route: Route): Request {
  return routeMessage.add(`add ${describe(route)}`, ...messageOf(route));
}

/**
 * The request that adds a route of one origin, for a batch; EEXIST if there is one with its destination, metric and table.
 * @param isReplacing replaces that one instead
 * Same as: `ip route add|replace [unreachable] <dst> [via <gateway> dev <oif> [onlink]] table <table> metric <priority> proto <protocol>`
 */
export function originRouteRequest(route: OriginRoute, isReplacing = false): Request {
  const flags = NLM_F_CREATE | (isReplacing ? NLM_F_REPLACE : NLM_F_EXCL);
  const own = asRoute(route);
  return routeMessage.add(`${isReplacing ? 'set' : 'add'} ${describe(own)}`, ...messageOf(own), flags);
}

/** The request that deletes such a route, for a batch; ESRCH if there is none of that origin. Same as: `ip route del … proto <protocol>` */
export function removeOriginRouteRequest(route: OriginRoute): Request {
  const own = asRoute(route);
  return routeMessage.remove(`delete ${describe(own)}`, ...messageOf(own));
}

/**
 * Routes of one origin in every table, of one family; others are not even sent by a kernel that filters.
 * Same as: `ip route show table all proto <protocol>`
 */
export function listOriginRoutes(socket: NetlinkSocket, family: 4 | 6, protocol: number): OriginRoute[] {
  const all = routeMessage.list(socket, 'list routes', { family: AF[family], protocol });
  return all.flatMap(message => {
    const { header, attrs: own } = message;
    const isWanted = header.type === RTN_UNICAST || header.type === RTN_UNREACHABLE;
    if (header.protocol !== protocol || !isWanted) return [];
    const onlink = (header.flags & RTNH_F_ONLINK) !== 0;
    const { oif = 0, gateway = { family, value: 0n } as const, priority = 0 } = own;
    const via = header.type === RTN_UNICAST ? { oif, gateway, onlink } : undefined;
    return { dst: destinationOf(message), via, table: tableOf(message), priority, protocol };
  });
}

function asRoute({ via, ...rest }: OriginRoute): Route {
  return { ...rest, type: via ? RTN_UNICAST : RTN_UNREACHABLE, oif: 0, ...via };
}

type RouteParts = Parameters<typeof routeMessage.encode>;

function tableOf({ header, attrs }: RouteMessage): number {
  return attrs.table ?? header.table;
}

function destinationOf({ header, attrs: { dst } }: RouteMessage): Cidr {
  const anywhere = { family: header.family === AF[4] ? 4 : 6, value: 0n } as const;
  return { ip: dst ?? anywhere, prefix: header.dstLength };
}

/** Adds a route before those with the same destination; IPv6 uses the older ones first. Same as: `ip route prepend …` */
export function prependRoute(socket: NetlinkSocket, route: Route): void {
  socket.request(routeMessage.add(`add ${describe(route)}`, ...messageOf(route), NLM_F_CREATE));
}

/**
 * Adds routes as they were listed, after those with the same destination; existing ones are ignored. A gateway may be reached by a route
 * that comes later, so refused ones are tried until none of them is accepted.
 * @returns what the kernel refused
 */
export function restoreRoutes(socket: NetlinkSocket, routes: readonly Route[]): NetlinkError[] {
  const flags = NLM_F_CREATE | NLM_F_APPEND;
  for (let left = routes; ; ) {
    const refused: [Route, NetlinkError][] = [];
    for (const route of left) {
      const request = routeMessage.add(`add ${describe(route)}`, ...messageOf(route), flags);
      const [outcome] = socket.attemptAll([request]);
      if (outcome instanceof NetlinkError && outcome.errno !== Errno.EEXIST) refused.push([route, outcome]);
    }
    if (refused.length === 0 || refused.length === left.length) return refused.map(([, error]) => error);
    left = refused.map(([route]) => route);
  }
}

/**
 * The part of a route that leads through one device, which another index may have now; undefined if none does. IPv6 combines routes with
 * one destination and metric into one, so the next hops of other devices belong to other routes; IPv4 deletes a route with all its hops.
 */
export function routeThrough(route: Route, index: number, now = index): Route | undefined {
  const { ways, ...rest } = route;
  if (ways === undefined) return route.oif === index ? { ...route, oif: now } : undefined;
  const own = ways.filter(({ oif }) => oif === index);
  const [way] = own;
  if (way === undefined) return undefined;
  if (own.length > 1) return { ...rest, oif: now, ways: own.map(one => ({ ...one, oif: now })) };
  return { ...rest, oif: now, gateway: way.gateway, onlink: way.onlink };
}

/** Adds a route, replacing any route with that destination. Same as: `ip route replace …` */
export function replaceRoute(socket: NetlinkSocket, route: Route): void {
  const flags = NLM_F_CREATE | NLM_F_REPLACE;
  socket.request(routeMessage.add(`set ${describe(route)}`, ...messageOf(route), flags));
}

/** Deletes a route of any origin; a missing one is ignored. Same as: `ip route del …` */
export function removeRoute(socket: NetlinkSocket, route: Route): void {
  const request = routeMessage.remove(`delete ${describe(route)}`, ...messageOf(route, RTPROT_UNSPEC));
  tolerating([Errno.ESRCH], () => socket.request(request));
}

/** What the kernel is to list of its routes, of which a router has a million. Linux before 4.20 lists all. */
export interface WantedRoutes {
  /** Index of a device through which they lead. */
  readonly oif?: number;
  /** RTPROT_*: where they come from. */
  readonly protocol?: number;
  /** RTN_* of linux/rtnetlink.h. */
  readonly type?: number;
}

/**
 * Unicast routes of every table, both families.
 * Same as: `ip route show table all [dev <oif>] [proto <protocol>]` and `ip -6 …`
 */
export function listRoutes(socket: NetlinkSocket, wanted?: WantedRoutes): Route[] {
  return unicastIn(listRouteMessages(socket, wanted));
}

/** Those to everywhere: a router may have one among a million others. */
export function listDefaultRoutes(socket: NetlinkSocket): Route[] {
  // The second byte of struct rtmsg.
  return unicastIn(listRouteMessages(socket).filter(([, prefix]) => prefix === 0));
}

function unicastIn(bodies: readonly Uint8Array[]): Route[] {
  return bodies.map(decodeRoute).filter(({ type }) => type === undefined);
}

/**
 * The same, each of IPv6 through one device: the kernel shows those with one destination and metric as one, and deletes the part that it is
 * told. Of IPv4 it deletes a route with all its hops.
 */
export function listRoutesByDevice(socket: NetlinkSocket, wanted?: WantedRoutes): Route[] {
  return listRoutes(socket, wanted).flatMap(route => {
    const devices = [...new Set(waysOf(route).map(({ oif }) => oif))];
    if (route.dst.ip.family === 4 || devices.length < 2) return [route];
    return devices.flatMap(index => {
      const part = routeThrough(route, index);
      return part ? { ...part, protocol: originOf(socket, part) } : [];
    });
  });
}

/** The kernel shows all parts with the origin of one: that of the device for which it is asked, if any. Same as: `ip -6 route get fibmatch <dst> oif <device>` */
function originOf(socket: NetlinkSocket, { dst, oif, table, priority, protocol }: Route): number | undefined {
  const found = findMatch(socket, networkOf(dst), oif);
  // A narrower route may lead to the first address of the destination.
  const isIt = found?.oif === oif && found.dst.prefix === dst.prefix && found.table === table;
  return isIt && found.priority === priority ? found.protocol : protocol;
}

/**
 * The whole route that the kernel would use for an address, or undefined when there is none. Linux before 4.13 tells the way of a packet
 * instead, with the address as destination. Same as: `ip route get fibmatch <address> [oif <device>]`
 */
export function findMatch(socket: NetlinkSocket, address: Ip, oif?: number): Route | undefined {
  const { family } = address;
  const flags = RTM_F_FIB_MATCH | (family === 4 ? RTM_F_LOOKUP_TABLE : 0);
  const header = { family: AF[family], dstLength: IP_BITS[family], flags };
  const op = `find what route leads to ${renderIp(address)}`;
  return socket.ask(routeMessage.question(op, header, { dst: address, oif }, UNREACHABLE, toRoute));
}

/**
 * The kernel's own messages of routes, for {@link decodeRoute}: what a record keeps of them. It also lists those of multicast routing
 * daemons and of MPLS, which have families of their own, and labels in place of addresses. A device that is gone has none.
 */
export function listRouteMessages(
  socket: NetlinkSocket,
  { oif, ...header }: WantedRoutes = {},
): Uint8Array[] {
  const request = routeMessage.get('list routes', header, { oif });
  const all = tolerating([Errno.ENODEV], () => socket.dump(request)) ?? [];
  // The first byte of struct rtmsg.
  return all.filter(([family]) => family === AF[4] || family === AF[6]);
}

/** Reads a message of {@link listRouteMessages}. A route that uses a next hop object gets the next hop itself. */
export function decodeRoute(body: Uint8Array): Route {
  return toRoute(routeMessage.decode(body));
}

function toRoute(message: RouteMessage): Route {
  const { header, attrs: own } = message;
  const { unknown: route = [], metrics: { unknown: metrics = [] } = {} } = own;
  return {
    dst: destinationOf(message),
    gateway: own.gateway ?? own.via,
    oif: own.oif ?? own.multipath?.[0]?.oif ?? 0,
    ways: own.multipath,
    source: own.prefsrc,
    table: tableOf(message),
    scope: header.scope,
    priority: own.priority,
    mtu: own.metrics?.mtu,
    advmss: own.metrics?.advmss,
    protocol: header.protocol,
    ...(header.type === RTN_UNICAST ? {} : { type: header.type }),
    ...(header.flags & RTNH_F_ONLINK ? { onlink: true } : {}),
    ...(header.tos ? { tos: header.tos } : {}),
    ...(own.src && header.srcLength ? { from: { ip: own.src, prefix: header.srcLength } } : {}),
    ...(route.length + metrics.length ? { others: { route, metrics } } : {}),
  };
}

/** linux/rtnetlink.h: RTN_BLACKHOLE, RTN_UNREACHABLE, RTN_PROHIBIT */
const REFUSING = [
  { type: 6, kind: 'blackhole' },
  { type: RTN_UNREACHABLE, kind: 'unreachable' },
  { type: 8, kind: 'prohibit' },
] as const;

export interface RefusingRoute {
  readonly kind: (typeof REFUSING)[number]['kind'];
  readonly dst: Cidr;
  readonly table: number;
  readonly protocol: number;
}

/** Routes of every table that drop packets. Same as: `ip route show table all type blackhole`, and of the other types */
export function listRefusingRoutes(socket: NetlinkSocket): RefusingRoute[] {
  return REFUSING.flatMap(({ type, kind }) =>
    listRouteMessages(socket, { type }).flatMap(body => {
      const message = routeMessage.decode(body);
      const { header } = message;
      if (header.type !== type) return [];
      return { kind, dst: destinationOf(message), table: tableOf(message), protocol: header.protocol };
    }),
  );
}

function messageOf(route: Route, protocol = route.protocol ?? RTPROT_BOOT): RouteParts {
  const { dst, gateway, oif, ways, source, table = RT_TABLE_MAIN, scope = 0, priority, mtu, advmss } = route;
  const { type = RTN_UNICAST, onlink, tos = 0, from, others } = route;
  const unknown = [...(others?.metrics ?? [])];
  // Tables above 255 only fit into the attribute.
  const [small, large] = table < 256 ? [table, undefined] : [0, table];
  const hasMetrics = mtu !== undefined || advmss !== undefined || unknown.length > 0;
  return [
    {
      family: AF[dst.ip.family],
      dstLength: dst.prefix,
      srcLength: from?.prefix ?? 0,
      tos,
      table: small,
      protocol,
      scope,
      type,
      flags: onlink ? RTNH_F_ONLINK : 0,
    },
    {
      dst: networkOf(dst),
      src: from && networkOf(from),
      ...gatewayOf(dst.ip.family, gateway),
      ...(ways ? { multipath: ways } : { oif: oif || undefined }),
      prefsrc: source,
      priority: priority || undefined,
      table: large,
      metrics: hasMetrics ? { mtu: mtu || undefined, advmss: advmss || undefined, unknown } : undefined,
      ...(others ? { unknown: [...others.route] } : {}),
    },
  ];
}

function describe({ type, dst, gateway, ways }: Route): string {
  const via = [gateway, ...(ways ?? []).map(way => way.gateway)].flatMap(ip => (ip ? renderIp(ip) : []));
  const what = type === RTN_UNREACHABLE ? 'unreachable route' : 'route';
  return `${what} to ${renderCidr(dst)}${via.length ? ` via ${via.join(', ')}` : ''}`;
}

const RTN_LOCAL = 2;
/** No route, routes that refuse, and packets that may not arrive. */
const { ESRCH, EXDEV, ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL } = Errno;
const UNREACHABLE: readonly number[] = [ESRCH, EXDEV, ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL];

interface RouteQuestion {
  readonly destination: Ip;
  readonly source?: Ip | undefined;
  /** Index of the device on which it arrives; by default it is sent by this host. */
  readonly iif?: number | undefined;
}

export interface RouteLookup {
  /** True when it is an address of this host. */
  readonly local: boolean;
  /** Index of the outgoing interface. */
  readonly oif: number;
  readonly gateway?: Ip | undefined;
  /** The source of packets that have none yet. */
  readonly source?: Ip | undefined;
}

/** The route to an address, or undefined when there is none. Same as: `ip route get <address>` */
export function findWay(socket: NetlinkSocket, address: Ip): RouteLookup | undefined {
  return socket.ask(questionFor({ destination: address }));
}

/**
 * Asks for the route of a packet; the kernel's error number if it has none. IPv4 packets that arrive are refused without forwarding, and by
 * reverse path filtering, too.
 * Same as: `ip route get <destination> from <source> iif <device>`
 */
export function lookUpRoute(socket: NetlinkSocket, question: RouteQuestion): RouteLookup | number {
  const asked = questionFor(question);
  const [outcome] = socket.attemptAll([asked]);
  if (isNetlinkError(outcome, ...UNREACHABLE)) return outcome.errno;
  if (outcome instanceof NetlinkError) throw outcome;
  return (outcome?.[0] && asked.read(outcome[0])) ?? 0;
}

function questionFor({ destination, source, iif }: RouteQuestion): Question<RouteLookup> {
  const op = `find the route to ${renderIp(destination)}`;
  const bits = IP_BITS[destination.family];
  const header = { family: AF[destination.family], dstLength: bits, srcLength: source ? bits : 0 };
  const own = { dst: destination, src: source, iif };
  return routeMessage.question(op, header, own, UNREACHABLE, ({ header: { type }, attrs }) => {
    const { oif = 0, via, gateway = via, prefsrc } = attrs;
    return { local: type === RTN_LOCAL, oif, gateway, source: prefsrc };
  });
}

/** Documentation/networking/vrf.rst: above the metric of any other default route, in every table. */
const METRIC = 4_278_198_272;

/** Adds the route; an existing one is kept. Same as: `ip route add table <table> unreachable default metric 4278198272` */
export function addUnreachableDefault(socket: NetlinkSocket, family: 4 | 6, table: number): void {
  const request = originRouteRequest(unreachableDefault(family, table, RTPROT_BOOT));
  tolerating([Errno.EEXIST], () => socket.request(request));
}

/** Deletes the route; a missing one is ignored. Same as: `ip route del table <table> unreachable default` */
export function removeUnreachableDefault(socket: NetlinkSocket, family: 4 | 6, table: number): void {
  const request = removeOriginRouteRequest(unreachableDefault(family, table, RTPROT_UNSPEC));
  tolerating([Errno.ESRCH], () => socket.request(request));
}

/** The tables of a family that have such a route. Same as: `ip route show table all type unreachable` */
export function listUnreachableDefaults(socket: NetlinkSocket, family: 4 | 6): number[] {
  return routeMessage.list(socket, 'list routes', { family: AF[family] }).flatMap(message => {
    const { header, attrs } = message;
    const isIt = header.type === RTN_UNREACHABLE && header.dstLength === 0 && attrs.priority === METRIC;
    return isIt ? tableOf(message) : [];
  });
}

function unreachableDefault(family: 4 | 6, table: number, protocol: number): OriginRoute {
  return { dst: { ip: { family, value: 0n }, prefix: 0 }, via: undefined, table, priority: METRIC, protocol };
}
