// Which addresses and routes does the IPAM plugin assign, which subnets have devices already, and which routes follow?

import { invalidConfig } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';
import {
  isInMainTable,
  type Result,
  type ResultDns,
  type ResultRoute,
  spreadGateways,
} from '../cni/result.ts';
import type { PluginConfig } from '../cni/schemas.ts';
import {
  type Cidr,
  cidrContains,
  findCidr,
  findIp,
  IP_BITS,
  type Ip,
  isSmallest,
  lastOf,
  networkOf,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
  sameIp,
  subnetOf,
} from '../net/ip.ts';
import { listAddresses, RT_SCOPE_LINK } from '../netlink/rtnl/addr.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { Route } from '../netlink/rtnl/route.ts';
import type { Call, Done, Undo } from '../plugin/define.ts';
import { tryAll } from '../plugin/steps.ts';

/** An address of the container's interface, and the gateway of its subnet. */
export interface PlannedIp {
  readonly cidr: Cidr;
  readonly gateway: Ip | undefined;
}

/** A route of the container; the outgoing interface is the attachment's own. */
export type PlannedRoute = Omit<Route, 'oif'>;

/** The addresses with the prefix lengths of their subnets. */
export function cidrsOf(ips: readonly PlannedIp[]): Cidr[] {
  return ips.map(({ cidr }) => cidr);
}

export function hostsOf(ips: readonly { readonly cidr: Cidr }[]): Ip[] {
  return ips.map(({ cidr }) => cidr.ip);
}

/** The layer 3 configuration of the container's interface. */
export interface ContainerAddressing {
  readonly ips: readonly PlannedIp[];
  readonly routes: readonly PlannedRoute[];
}

/**
 * Refuses what an IPAM plugin such as static hands out if it is asked for, and what no container can have beside its neighbours: their
 * gateway's address, and those of the subnet itself.
 * @param own addresses that the host has on the link
 * @throws CniError 7
 */
export function refuseUnusable(ips: readonly PlannedIp[], own: readonly Ip[] = []): void {
  for (const { cidr } of ips) {
    const problem = findUnusable(cidr, ips, own);
    if (problem === undefined) continue;
    throw invalidConfig(
      `Cannot give the container address ${renderCidr(cidr)}: it is ${problem}; request or configure another one`,
    );
  }
}

/** The kernel drops packets from and to such addresses on a link, or takes them for its own. */
const NOT_ON_LINKS = ['127.0.0.0/8', '224.0.0.0/4', '::1/128', 'ff00::/8'].map(parseCidr);

function findUnusable(cidr: Cidr, ips: readonly PlannedIp[], own: readonly Ip[]): string | undefined {
  const { ip } = cidr;
  if (NOT_ON_LINKS.some(one => cidrContains(one, ip))) return 'a loopback or multicast address';
  if (ips.some(({ gateway }) => gateway && sameIp(gateway, ip))) return 'the address of the gateway';
  if (own.some(one => sameIp(one, ip))) return 'an address of the host on that link';
  if (isSmallest(cidr)) return undefined;
  if (sameIp(ip, networkOf(cidr))) return 'the address of the subnet itself';
  return ip.family === 4 && sameIp(ip, lastOf(cidr)) ? 'the broadcast address of its subnet' : undefined;
}

/**
 * Refuses a gateway of another family than its address, for plugins that give it to the host with the address's prefix length: fd00::1/24
 * would be a subnet that the configuration does not have.
 * @throws CniError 7
 */
export function refuseMixedFamilies(ips: readonly PlannedIp[]): void {
  for (const { cidr, gateway } of ips) {
    if (gateway === undefined || gateway.family === cidr.ip.family) continue;
    throw invalidConfig(
      `Cannot use gateway ${renderIp(gateway)} for ${renderCidr(cidr)}: it is of another family; correct "gateway" in "ipam"`,
    );
  }
}

/**
 * Converts a route of a result to one for the kernel. A route without a gateway uses the family's default gateway, unless
 * its destination is inside one of the interface's own subnets, or its scope says that it is on the link.
 */
export function planRoute(route: ResultRoute, ips: readonly PlannedIp[]): PlannedRoute {
  const dst = parseCidr(route.dst);
  const onLink = ips.some(({ cidr }) => dst.prefix >= cidr.prefix && cidrContains(cidr, networkOf(dst)));
  const isDirect = onLink || (route.scope ?? 0) >= RT_SCOPE_LINK;
  const usual = isDirect ? undefined : firstGateway(ips, dst.ip.family);
  // The way to the gateway itself; result formats before 1.1.0 have no scopes.
  const isWay = usual && dst.prefix === IP_BITS[usual.family] && sameIp(usual, dst.ip);
  const gateway = route.gw ? parseIp(route.gw) : isWay ? undefined : usual;
  const { table, scope, priority, mtu, advmss } = route;
  return { dst, gateway, table, scope, priority, mtu, advmss };
}

export function reportedRoutes(result: Result): PlannedRoute[] {
  const ips = (result.ips ?? []).map(({ address, gateway }) => ({
    cidr: parseCidr(address),
    gateway: findIp(gateway ?? ''),
  }));
  return spreadGateways(result.routes ?? [])
    .filter(isInMainTable)
    .map(route => planRoute(route, ips));
}

/** The gateway for routes of the family that specify none. */
export function firstGateway(ips: readonly PlannedIp[], family: 4 | 6): Ip | undefined {
  return ips.find(({ cidr, gateway }) => gateway !== undefined && cidr.ip.family === family)?.gateway;
}

// Which subnets are configured, and which addresses does a container request itself?
//
// The creator of a pod can request its addresses: with the capability `ips`, in `args.cni`, in CNI_ARGS. An IPAM plugin
// such as static grants them with the requested prefix length, and a third-party one may do the same. With a gateway, the host
// would get that prefix as a subnet and route of its own: 8.8.8.8/8 would send all of the node's traffic for 8.0.0.0/8 to
// pods. Therefore the host applies a requested address only as far as the configuration, or the bridge, has its subnet.
//
// The capability `ipRanges` counts as configuration: podman and dockershim pass the node's own ranges with it, and the
// delegate runner does not accept it from pods. Addresses that were not requested are the IPAM plugin's choice, possibly from
// pools kept in the cluster; they are under the administrator's control.

/** Members of an IPAM configuration that contain a subnet: those of host-local, whereabouts and static. */
const SUBNET_KEYS = ['subnet', 'range', 'address'];
/** Destinations, and addresses that are not handed out. */
const OTHER_KEYS = ['routes', 'exclude'];

/** The minimum prefix length of a container subnet. Half of all addresses is not a subnet, whatever the configuration says. */
export const SHORTEST_PREFIX = 8;

/** Reads which subnets are configured in a request, and which addresses it asks for. */
export function holdingsOf({ request, env }: Pick<Call, 'request' | 'env'>) {
  const offered = memberOf(request, 'runtimeConfig');
  const { ipRanges, ...others } = isObject(offered) ? offered : ({} as JsonObject);
  const held = [memberOf(request, 'ipam'), ipRanges]
    .flatMap(subnetsIn)
    .filter(({ prefix }) => prefix >= SHORTEST_PREFIX);
  const asked = [others, memberOf(request, 'args'), env.args].flatMap(addressesIn);
  return {
    /** True when the configuration has the subnet, or one that covers it. */
    holds: (cidr: Cidr): boolean => held.some(own => own.prefix <= cidr.prefix && cidrContains(own, cidr.ip)),
    /** True when the configuration has exactly this subnet. */
    names: (cidr: Cidr): boolean =>
      held.some(own => own.prefix === cidr.prefix && sameIp(own.ip, networkOf(cidr))),
    /** True when the address was requested on behalf of the container. */
    isAsked: (ip: Ip): boolean => asked.some(one => sameIp(one, ip)),
  };
}

function subnetsIn(value: unknown): Cidr[] {
  if (Array.isArray(value)) return value.flatMap(subnetsIn);
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([key, member]) => {
    if (OTHER_KEYS.includes(key.toLowerCase())) return [];
    if (typeof member !== 'string') return subnetsIn(member);
    // whereabouts has ranges with both ends: 10.1.0.5-10.1.0.9/24.
    const cidr = SUBNET_KEYS.includes(key.toLowerCase())
      ? findCidr(member.split('-').at(-1) ?? '')
      : undefined;
    return cidr ? [subnetOf(cidr)] : [];
  });
}

/** An IPv6 address has at least two colons; a single colon before an IPv4 address belongs to something else. */
const ADDRESS = /[\da-f]*:[\da-f:]*:[\da-f:.]*|\d{1,3}(?:\.\d{1,3}){3}/gi;

/** Every address in the texts of a value, with or without a prefix length: annotations have formats of their own. */
function addressesIn(value: unknown): Ip[] {
  if (Array.isArray(value)) return value.flatMap(addressesIn);
  if (isObject(value)) return Object.values(value).flatMap(addressesIn);
  if (typeof value !== 'string') return [];
  return (value.match(ADDRESS) ?? []).flatMap(text => findIp(text) ?? []);
}

/** The device of the host below one that it made for a container; index 0 if there is none. */
export function hostEndOf({ attrs, peer }: Pick<Link, 'attrs' | 'peer'>): { readonly index: number } {
  return { index: attrs.linkNetnsId === undefined ? 0 : peer };
}

/**
 * Refuses addresses that no container can have, and requested ones that the host has on a device. Those that IPAM chooses are the
 * administrator's own affair, and need no question to the kernel.
 * @param device of the host, on the container's link
 * @throws CniError 7
 */
export function refuseHostsOwn(
  call: Call,
  device: { readonly index: number },
  ips: readonly PlannedIp[],
): void {
  const { isAsked } = holdingsOf(call);
  const isNeeded = ips.some(({ cidr }) => isAsked(cidr.ip));
  const own = isNeeded ? hostsOf(listAddresses(call.host, device.index)) : [];
  refuseUnusable(ips, own);
}

/**
 * IPAM plugins that talk to a server through the interface that they address. DEL of any other comes after the interface is
 * deleted, since the address must not be reused while anything still has it; theirs comes before. The protocol has no word for
 * the difference, and this name is the same in the reference.
 */
const TALKS_THROUGH_INTERFACE: readonly (string | undefined)[] = ['dhcp'];

/** Whether the IPAM plugin needs the interface, up and connected, for its ADD and DEL. */
export function needsInterface({ ipam }: PluginConfig): boolean {
  return TALKS_THROUGH_INTERFACE.includes(ipam?.type);
}

/** Has the IPAM plugin, if one is configured, do its part of a verb. */
export async function callIpam(
  call: Call<PluginConfig>,
  verb: 'check' | 'del' | 'gc' | 'status',
): Promise<void> {
  const type = call.conf.ipam?.type;
  if (type) await call.delegate(type)[verb]();
}

/**
 * For a plugin that may make the interface before it asks. To be called before it makes anything, so that a failed ADD releases the
 * addresses last, and keeps them for DEL if something may still have them; those that need the interface are released first.
 * @returns a function that requests the addresses, if an IPAM plugin is configured
 */
export function prepareIpam(call: Call<PluginConfig>): () => Promise<Result | undefined> {
  const type = call.conf.ipam?.type;
  if (!type) return async () => undefined;
  const delegate = call.delegate(type);
  let isGranted = false;
  const release: Undo = async failed => {
    if (!isGranted) return;
    if (failed.length) throw new Error('what has them may not be gone; DEL releases them');
    await delegate.del();
  };
  const early = !needsInterface(call.conf);
  if (early) call.onFailure('release the addresses', release);
  return async () => {
    const result = await delegate.add();
    isGranted = true;
    if (!early) call.onFailure('release the addresses', release);
    refuseCut(result.routes ?? [], type);
    return result;
  };
}

/** The largest numbers that the kernel keeps of a route: struct rtmsg, RTA_TABLE and RTA_PRIORITY of linux/rtnetlink.h. */
const LARGEST = { table: 2 ** 32 - 1, priority: 2 ** 32 - 1, scope: 2 ** 8 - 1 };

/** Refuses what the kernel would cut: table 2^32 would be the main one, and CHECK would miss the route for ever. */
function refuseCut(routes: readonly ResultRoute[], type: string): void {
  for (const { dst, table = 0, priority = 0, scope = 0 } of routes)
    for (const [member, value] of Object.entries({ table, priority, scope })) {
      const largest = LARGEST[member as keyof typeof LARGEST];
      if (value >= 0 && value <= largest) continue;
      throw invalidConfig(
        `Cannot use the route to ${dst} of IPAM plugin "${type}": its ${member} is ${value}, not 0 to ${largest}; correct the routes of "ipam"`,
      );
    }
}

/**
 * Deletes interfaces and releases their addresses, each at its time: see {@link needsInterface}.
 * @param verb of the IPAM plugin
 * @param remove deletes the interfaces, then does what it is given
 * @throws what failed
 */
export async function removeAndRelease(
  call: Call<PluginConfig>,
  verb: 'del' | 'gc',
  remove: (then: () => Done) => Done,
): Promise<void> {
  const release = (): Done => callIpam(call, verb);
  if (!needsInterface(call.conf)) return remove(release);
  await tryAll([release, () => remove(() => {})]);
}

/**
 * Resolver settings for the result. If the configuration has any member, even an empty list, its settings replace IPAM's
 * (reference behaviour).
 */
export function dnsOf({ dns }: PluginConfig, ipam: Result | undefined): ResultDns | undefined {
  const given = dns !== undefined && Boolean(dns.nameservers || dns.search || dns.options || dns.domain);
  return given ? dns : ipam?.dns;
}
