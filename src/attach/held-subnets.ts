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
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';
import { type Cidr, cidrContains, findCidr, networkOf, subnetOf } from '../net/cidr.ts';
import { findIp, type Ip, sameIp } from '../net/ip.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';
import { type PlannedIp, refuseUnusable } from './addressing.ts';

/** Members of an IPAM configuration that contain a subnet: those of host-local, whereabouts and static. */
const SUBNET_KEYS = ['subnet', 'range', 'address'];
/** Destinations, and addresses that are not handed out. */
const OTHER_KEYS = ['routes', 'exclude'];

/** The minimum prefix length of a container subnet. Half of all addresses is not a subnet, whatever the configuration says. */
export const SHORTEST_PREFIX = 8;

/** What a request says about addresses, apart from those that IPAM returned. */
interface Holdings {
  /** True when the configuration has the subnet, or one that covers it. */
  holds(cidr: Cidr): boolean;
  /** True when the configuration has exactly this subnet. */
  names(cidr: Cidr): boolean;
  /** True when the address was requested on behalf of the container. */
  isAsked(ip: Ip): boolean;
}

/** Reads which subnets are configured in a request, and which addresses it asks for. */
export function holdingsOf({ request, env }: Pick<Call, 'request' | 'env'>): Holdings {
  const offered = memberOf(request, 'runtimeConfig');
  const { ipRanges, ...others } = isObject(offered) ? offered : ({} as JsonObject);
  const held = [memberOf(request, 'ipam'), ipRanges]
    .flatMap(subnetsIn)
    .filter(({ prefix }) => prefix >= SHORTEST_PREFIX);
  const asked = [others, memberOf(request, 'args'), env.args].flatMap(addressesIn);
  return {
    holds: cidr => held.some(own => own.prefix <= cidr.prefix && cidrContains(own, cidr.ip)),
    names: cidr => held.some(own => own.prefix === cidr.prefix && sameIp(own.ip, networkOf(cidr))),
    isAsked: ip => asked.some(one => sameIp(one, ip)),
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
  const own = isNeeded ? listAddresses(call.host, device.index).map(({ cidr }) => cidr.ip) : [];
  refuseUnusable(ips, own);
}
