// How does the container's interface get its addresses and routes, and when can they be used?

import { type CniError, invalidEnvironment } from '../cni/errors.ts';
import { atLeast, type Result, type ResultInterface } from '../cni/result.ts';
import type { PluginConfig } from '../cni/schemas.ts';
import {
  bySubnet,
  type Cidr,
  hostCidr,
  type Ip,
  renderCidr,
  renderIp,
  sameIp,
  sameSubnet,
  subnetKey,
} from '../net/ip.ts';
import type { Request } from '../netlink/codec.ts';
import {
  type Address,
  addAddressRequest,
  IFA_F_DADFAILED,
  IFA_F_TENTATIVE,
  listAddresses,
  RT_SCOPE_LINK,
  restoreAddressRequest,
} from '../netlink/rtnl/addr.ts';
import {
  findLink,
  getLink,
  IFF_LOOPBACK,
  IFF_LOWER_UP,
  IFF_UP,
  type Link,
  listLinks,
  setLink,
  setLinkRequest,
} from '../netlink/rtnl/link.ts';
import {
  addRoute,
  addRouteRequest,
  inOrder,
  isUnreached,
  listRoutesByDevice,
  prependRoute,
  type Route,
  RT_TABLE_MAIN,
  RTPROT_KERNEL,
  removeRoute,
  routeThrough,
} from '../netlink/rtnl/route.ts';
import { isNetlinkError, NetlinkError, type NetlinkSocket } from '../netlink/socket.ts';
import type { Call } from '../plugin/define.ts';
import { confirm, mend } from '../plugin/steps.ts';
import { Errno } from '../sys/errno.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import { findSysctl, trySysctl, writeSysctl } from '../sys/sysctl.ts';
import {
  type ContainerAddressing,
  callIpam,
  cidrsOf,
  type PlannedIp,
  type PlannedRoute,
} from './addressing.ts';
import { withoutIpv6 } from './forwarding.ts';
import type { Stage } from './ready.ts';

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
  const ordered = inOrder(merged);
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
    if (!isUnreached(thrown)) throw thrown;
    const { oif, table } = route;
    const ways = gatewaysOf(route).map((ip): Route => {
      return { dst: hostCidr(ip), oif, table, scope: RT_SCOPE_LINK };
    });
    // What the kernel refuses here makes it refuse the route again.
    socket.attemptAll(ways.map(addRouteRequest));
    add();
    return ways;
  }
}

function gatewaysOf({ gateway, ways = [] }: Pick<Route, 'gateway' | 'ways'>): Ip[] {
  return [gateway, ...ways.map(way => way.gateway)].filter(ip => ip !== undefined);
}

/** The kernel has already made the subnet's own route, and IPAM may list a route twice. */
function comeBefore(socket: NetlinkSocket, index: number, route: Route): void {
  const isMade = routesThrough(socket, { index }).some(one => isSamePlace(one, route));
  if (!isMade) prependRoute(socket, route);
}

/** Puts routes back that others removed or gave another gateway, if any is missing. The interface's own routes to other places stay. */
export function repairRoutes(socket: NetlinkSocket, link: Link, routes: readonly PlannedRoute[]): void {
  mend(
    () => checkRoutes(socket, link, routes),
    () => putRoutesRight(socket, link, routes),
  );
}

/**
 * The same for routes that ADD reported, unless they now lead to other gateways and the IPAM plugin does not stand by the result: a DHCP
 * server may name other gateways at any time.
 * @throws CniError of the IPAM plugin's CHECK
 */
export async function repairReportedRoutes(
  call: Call<PluginConfig>,
  link: Link,
  routes: readonly PlannedRoute[],
): Promise<void> {
  const { container, conf } = call;
  try {
    checkRoutes(container, link, routes);
  } catch {
    const type = conf.ipam?.type;
    if (type && wrongRoutes(container, link, routes).length > 0) await call.delegate(type).check();
    putRoutesRight(container, link, routes);
  }
}

function putRoutesRight(socket: NetlinkSocket, link: Link, routes: readonly PlannedRoute[]): void {
  for (const found of wrongRoutes(socket, link, routes)) removeRoute(socket, found);
  addRoutes(socket, link, routes);
}

/**
 * Routes of the interface to the same places that do not lead to all the gateways, or lack the source: the kernel takes it from routes of
 * IPv6 when the address goes. What the kernel has made itself stays.
 */
function wrongRoutes(socket: NetlinkSocket, link: Link, routes: readonly PlannedRoute[]): Route[] {
  const merged = mergeWays(routes, link.index);
  return routesThrough(socket, link).filter(found => {
    const planned = merged.filter(one => isSamePlace(found, one));
    return (
      found.protocol !== RTPROT_KERNEL && planned.length > 0 && !planned.some(one => isSameRoute(found, one))
    );
  });
}

function routesThrough(socket: NetlinkSocket, { index }: Pick<Link, 'index'>): Route[] {
  return listRoutesByDevice(socket, { oif: index }).flatMap(route => routeThrough(route, index) ?? []);
}

/** @throws Error naming the first route that is missing from the interface, in any table */
export function checkRoutes(socket: NetlinkSocket, link: Link, wanted: readonly PlannedRoute[]): void {
  const present = routesThrough(socket, link);
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

function isSamePlace(found: Route, wanted: Route): boolean {
  return (
    sameSubnet(found.dst, wanted.dst) &&
    found.table === (wanted.table || RT_TABLE_MAIN) &&
    (!wanted.priority || found.priority === wanted.priority)
  );
}

/** Compares two of one destination. Ignores attributes that the plan does not specify. */
function isSameRoute(found: Route, wanted: PlannedRoute): boolean {
  // A later plugin, such as sbr, may have moved it.
  if (wanted.table && wanted.table !== found.table) return false;
  const gateways = gatewaysOf(found);
  if (!gatewaysOf(wanted).every(ip => gateways.some(one => sameIp(one, ip)))) return false;
  if (wanted.source && !sameGateway(found.source, wanted.source)) return false;
  // IPv6 has no scopes.
  if (wanted.scope && wanted.dst.ip.family === 4 && wanted.scope !== found.scope) return false;
  const numbers = ['priority', 'mtu', 'advmss'] as const;
  return numbers.every(key => !wanted[key] || Math.min(wanted[key], KEPT_AT_MOST[key]) === found[key]);
}

/** The kernel cuts greater values without a word; net/ipv4/metrics.c, ip_metrics_convert */
const KEPT_AT_MOST = { priority: Number.POSITIVE_INFINITY, mtu: 65_520, advmss: 65_495 };

export function sameGateway(a: Ip | undefined, b: Ip | undefined): boolean {
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

const ALL_REDIRECTS = 'net/ipv4/conf/all/accept_redirects';
const ALL_LOCALNET = 'net/ipv4/conf/all/route_localnet';
const LOOPBACK_SWITCH = 'net/ipv6/conf/lo/disable_ipv6';

/**
 * Gives the container's interface its addresses, brings it up and adds the routes.
 * @param detectDuplicates leave IPv6 duplicate address detection enabled; the container then waits for it
 */
export function configureContainer(
  call: Call,
  link: Link,
  { ips, routes }: ContainerAddressing,
  detectDuplicates: boolean,
): void {
  const cidrs = cidrsOf(ips);
  prepare(call, link, cidrs, detectDuplicates);
  addRoutes(call.container, link, routes, addressing(link, cidrs, detectDuplicates));
}

/**
 * Gives the container's interface its addresses and brings it up. The addresses come first because the kernel announces
 * them when the interface comes up (arp_notify, ndisc_notify).
 * @param kept addresses that were listed elsewhere, with all that belongs to them; they come before the others
 */
export function addressContainer(
  call: Call,
  link: Link,
  cidrs: readonly Cidr[],
  detectDuplicates: boolean,
  kept: readonly Address[] = [],
): void {
  prepare(call, link, [...kept.map(({ cidr }) => cidr), ...cidrs], detectDuplicates);
  call.container.requestAll(addressing(link, cidrs, detectDuplicates, kept));
}

/**
 * Leaves addresses, routes and gateways of the interface to its configuration: any neighbour could otherwise route the container by a
 * router advertisement (CVE-2020-13401) or a redirect. Nor does a neighbour reach what listens on 127.0.0.1: a namespace inherits
 * `route_localnet`, which kube-proxy turns on, from the machine. To be called before the interface is up; dhcp opens what `ipv6` asks for.
 */
export function ignoreNeighbours(call: Call<PluginConfig>, ifname: string): void {
  const { containerNetns: netns, conf } = call;
  if (!conf.ipam?.type) return;
  inNetns(netns, () => {
    for (const key of ['accept_ra', 'autoconf', 'accept_redirects'])
      trySysctl(`net/ipv6/conf/${ifname}/${key}`, '0');
    for (const key of ['accept_redirects', 'accept_source_route', 'route_localnet'])
      trySysctl(`net/ipv4/conf/${ifname}/${key}`, '0');
    // Either of both counts: redirects, on an interface that does not forward.
    for (const path of [ALL_REDIRECTS, ALL_LOCALNET]) {
      if (findSysctl(path) !== '1' || (path === ALL_LOCALNET && isInUse(call, ifname))) continue;
      call.onFailure(`set sysctl "${path}" again`, () => inNetns(netns, () => trySysctl(path, '1')));
      trySysctl(path, '0');
    }
  });
}

/** Whether the container has other interfaces: then it runs, and may have made the setting itself. */
function isInUse({ container }: Call, ifname: string): boolean {
  return listLinks(container).some(
    ({ name, flags }) => name !== ifname && (flags & (IFF_UP | IFF_LOOPBACK)) === IFF_UP,
  );
}

/** Applies the settings that the interface needs before it gets addresses. */
function prepare(call: Call, link: Link, cidrs: readonly Cidr[], detectDuplicates: boolean): void {
  const { containerNetns: netns } = call;
  const wantsIpv6 = cidrs.some(({ ip }) => ip.family === 6);
  inNetns(netns, () => {
    trySysctl(`net/ipv4/conf/${link.name}/arp_notify`, '1');
    const conf = `net/ipv6/conf/${link.name}`;
    trySysctl(`${conf}/accept_dad`, detectDuplicates ? '1' : '0');
    if (detectDuplicates) trySysctl(`${conf}/enhanced_dad`, '1');
    if (!wantsIpv6) return;
    enableIpv6(link.name, () => {
      call.onFailure('disable IPv6 again', () => inNetns(netns, () => trySysctl(LOOPBACK_SWITCH, '1')));
    });
  });
}

/** A device that is up already, as a DHCP client needs it, goes down first: the kernel announces addresses on the way up. */
function addressing(
  { index, flags }: Link,
  cidrs: readonly Cidr[],
  detectDuplicates: boolean,
  kept: readonly Address[] = [],
): Request[] {
  return [
    ...(flags & IFF_UP ? [setLinkRequest(index, { up: false })] : []),
    ...kept.map(address => restoreAddressRequest({ ...address, index })),
    ...cidrs.map(cidr => addAddressRequest(index, cidr, { nodad: !detectDuplicates })),
    setLinkRequest(index, { up: true }),
  ];
}

/** @param onLoopback called before the loopback device, which outlives a failed ADD, is changed */
function enableIpv6(ifname: string, onLoopback: () => void): void {
  const conf = `net/ipv6/conf/${ifname}`;
  trySysctl(`${conf}/ndisc_notify`, '1');
  for (const path of [LOOPBACK_SWITCH, `${conf}/disable_ipv6`]) {
    const disabled = findSysctl(path);
    if (disabled === undefined) throw withoutIpv6(ifname);
    if (disabled === '0') continue;
    if (path === LOOPBACK_SWITCH) onLoopback();
    writeSysctl(path, '0');
  }
  trySysctl(`${conf}/keep_addr_on_down`, '1');
}

/** @throws CniError 4 when the container has an interface of that name */
export function refuseTakenName({ container, containerNetns, env }: Call): void {
  if (findLink(container, env.ifname)) throw interfaceExists(env.ifname, containerNetns);
}

/** The container has an interface of that name, which another ADD or the container made. */
export function interfaceExists(ifname: string, netns: Pick<Netns, 'path'>, cause?: unknown): CniError {
  return invalidEnvironment(
    `Cannot create interface "${ifname}" in "${netns.path}": an interface of that name exists; run DEL first`,
    { details: `CNI_IFNAME=${ifname}`, cause },
  );
}

/** A result's entry for the container's interface. The key `mtu`, if it is wanted, exists since 1.1.0. */
export function describeInterface(
  { env, version }: Pick<Call, 'env' | 'version'>,
  { mac, mtu }: Pick<Link, 'mac' | 'mtu'>,
  wantsMtu = true,
): ResultInterface {
  return {
    name: env.ifname,
    mac: mac ?? '',
    sandbox: env.netns,
    ...(wantsMtu && atLeast(version, '1.1.0') ? { mtu } : {}),
  };
}

/** What a result says of the attachment's interface. */
export function reportedIn({ interfaces }: Result, { env }: Pick<Call, 'env'>): ResultInterface | undefined {
  return interfaces?.find(one => one.name === env.ifname && one.sandbox === env.netns);
}

/** Gives the interface the hardware address and the MTU that the result reports. @returns it as it is then */
export function repairInterface(call: Call, link: Link): Link {
  const { prevResult, container } = call;
  const reported = prevResult && reportedIn(prevResult, call);
  const mac = reported?.mac?.toLowerCase();
  const wrongMac = mac !== undefined && mac !== link.mac ? mac : undefined;
  const wrongMtu = reported?.mtu !== undefined && reported.mtu !== link.mtu ? reported.mtu : undefined;
  if (wrongMac === undefined && wrongMtu === undefined) return link;
  setLink(container, link.index, { mac: wrongMac, mtu: wrongMtu });
  return { ...link, ...(wrongMac === undefined ? {} : { mac: wrongMac }) };
}

/**
 * Gives the interface those of its addresses that are missing, if they are still this attachment's.
 * @param probe asks the link for IPv4 addresses, if ADD did: another host may have got them since
 * @throws CniError of the IPAM plugin's CHECK: another attachment may have the address; CniError 11 or Error if another host has it
 */
export async function repairAddresses(
  call: Call<PluginConfig>,
  link: Link,
  cidrs: readonly Cidr[],
  probe?: (call: Call, link: Link, stages: readonly Stage[], ips: readonly PlannedIp[]) => Promise<void>,
): Promise<void> {
  const present = listAddresses(call.container, link.index).map(({ cidr }) => renderCidr(cidr));
  const missing = cidrs.filter(cidr => !present.includes(renderCidr(cidr)));
  if (missing.length === 0) return;
  await callIpam(call, 'check');
  const now = { socket: call.container, link: getLink(call.container, link.index), ips: [] };
  await probe?.(
    call,
    now.link,
    [now],
    missing.map(cidr => ({ cidr, gateway: undefined })),
  );
  // Turning IPv6 off removes its addresses.
  if (missing.some(({ ip }) => ip.family === 6))
    inNetns(call.containerNetns, () => enableIpv6(link.name, () => {}));
  // Where ADD did without duplicate address detection, so does the kernel now.
  call.container.requestAll(missing.map(cidr => addAddressRequest(link.index, cidr)));
  await awaitDuplicateDetection(call.container, link);
}

/** The kernel does not use an address for which another host has answered. @throws Error naming it */
export function refuseDuplicate({ name }: Pick<Link, 'name'>, addresses: readonly Address[]): void {
  const duplicate = addresses.find(({ flags }) => flags & IFA_F_DADFAILED);
  if (duplicate === undefined) return;
  throw new Error(
    `Cannot use ${renderCidr(duplicate.cidr)} on "${name}": another host on the network has that address`,
  );
}

/** The kernel sends one probe and waits a second, after a delay of up to one second (RFC 4862). */
const DETECTION_DEADLINE_MS = 5_000;
const POLL_MS = 25;

/**
 * Waits until the kernel has finished duplicate address detection for the interface's IPv6 addresses. Without a carrier it begins once
 * there is one.
 * @throws Error naming an address that another host uses, or that stays undecided
 */
export async function awaitDuplicateDetection(socket: NetlinkSocket, link: Link): Promise<void> {
  const giveUpAt = performance.now() + DETECTION_DEADLINE_MS;
  for (let isFirst = true; ; isFirst = false) {
    const addresses = listAddresses(socket, link.index);
    refuseDuplicate(link, addresses);
    const tentative = addresses.filter(({ flags }) => flags & IFA_F_TENTATIVE);
    const isIdle = isFirst && tentative.length > 0 && !(getLink(socket, link.index).flags & IFF_LOWER_UP);
    if (tentative.length === 0 || isIdle) return;
    if (performance.now() > giveUpAt) {
      const names = tentative.map(({ cidr }) => renderCidr(cidr)).join(', ');
      throw new Error(
        `Cannot use ${names} on "${link.name}": duplicate address detection has not finished after ${DETECTION_DEADLINE_MS / 1000} s`,
      );
    }
    await Bun.sleep(POLL_MS);
  }
}
