// How does an interface follow what an IPv4 server grants: the address, its routes and the MTU, also when they change with a renewal?

import { planRoute } from '../../src/attach/addressing.ts';
import { addRoutes, mergeWays } from '../../src/attach/container.ts';
import { describeError } from '../../src/cni/errors.ts';
import type { Log } from '../../src/log.ts';
import {
  IPV6_MIN_MTU,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
  sameIp,
  sameSubnet,
} from '../../src/net/ip.ts';
import { addAddressRequest, listAddresses, RT_SCOPE_UNIVERSE } from '../../src/netlink/rtnl/addr.ts';
import { setLink } from '../../src/netlink/rtnl/link.ts';
import {
  leavesBy,
  listRoutes,
  type Route,
  RT_TABLE_MAIN,
  RTPROT_KERNEL,
  removeRoute,
  restoreRoutes,
} from '../../src/netlink/rtnl/route.ts';
import { type Lease, resultOf } from './lease.ts';
import type { OpenInterface } from './upkeep.ts';

/** What the MTU of an interface depends on, apart from its lease. */
export interface MtuLimits {
  /** The interface's own, before a server lowered it. */
  readonly own: number;
  /** IPv6 addresses are obtained as well. */
  readonly needsIpv6: boolean;
  readonly log: Log;
}

/**
 * Lowers the MTU of the interface to the one that the server names, and raises it again, to its own at most, once the server names a larger
 * one or none. A larger one than its own is not believed: the link would drop such packets. What others have lowered stays, and so does
 * what they have raised, unless the server names less.
 * @param before the lease that this one replaces, if it does
 * @returns whether it was changed
 */
export function followMtu(place: OpenInterface, lease: Lease, limits: MtuLimits, before?: Lease): boolean {
  const { socket, link } = place;
  const wanted = mtuFor(place, lease, limits);
  if (lease.mtu !== undefined && lease.mtu !== wanted && lease.mtu !== before?.mtu) {
    const why = lease.mtu < wanted ? 'has IPv6, which needs' : 'has';
    limits.log.warn(`Ignoring MTU ${lease.mtu} of the DHCP server: "${link.name}" ${why} ${wanted}`);
  }
  if (wanted === link.mtu) return false;
  if (wanted < link.mtu) {
    // A plugin after the one that called ADD, such as tuning, may have raised it beyond its own.
    if (lease.mtu === undefined || lease.mtu >= link.mtu) return false;
    setLink(socket, link.index, { mtu: Math.max(wanted, lease.mtu) });
    return true;
  }
  const isOurs = before !== undefined && mtuFor(place, before, limits) === link.mtu;
  if (!isOurs) return false;
  try {
    setLink(socket, link.index, { mtu: wanted });
    return true;
  } catch (cause) {
    limits.log.info(`Leaving the MTU of "${link.name}" at ${link.mtu}: ${describeError(cause)}`);
    return false;
  }
}

function mtuFor(place: OpenInterface, { mtu }: Lease, { own, needsIpv6 }: MtuLimits): number {
  if (mtu === undefined) return own;
  const least = needsIpv6 || hasIpv6(place) ? Math.min(IPV6_MIN_MTU, own) : 0;
  return Math.max(Math.min(mtu, own), least);
}

/** Whether it has an address that others know: each interface has a link-local one. */
function hasIpv6({ socket, link }: OpenInterface): boolean {
  return listAddresses(socket, link.index).some(
    ({ cidr, scope }) => cidr.ip.family === 6 && scope === RT_SCOPE_UNIVERSE,
  );
}

interface LeaseChange {
  /** The lease that this one replaces: the routes that only that one has go. */
  readonly before: Lease;
  /** Metric of all routes. */
  readonly priority: number | undefined;
  /** Destinations that the interface must not be given a route to, as {@link missingRoutes} found them. */
  readonly without: readonly string[];
}

/** Gives the interface the lease's address and routes. What is there already is left alone. */
export function applyLease(place: OpenInterface, lease: Lease, change: LeaseChange): void {
  const { socket, link } = place;
  const { before, priority, without } = change;
  const isThere = hasAddress(place, lease);
  const [former, wanted] = [plannedRoutes(before, priority), plannedRoutes(lease, priority)];
  const isChanged = (one: PlannedRoute) => !hasSameWays(one, former, wanted);
  const [gone, coming] = [former.filter(isChanged), isThere ? wanted.filter(isChanged) : wanted];
  if (isThere && gone.length + coming.length === 0) return;
  const all = listRoutes(socket);
  const leaving = all.filter(one => isOwn(one, link.index) && gone.some(was => isSameWay(one, was)));
  const allowed = coming.filter(({ dst }) => !without.includes(renderCidr(dst)));
  const added = allowed.flatMap(one => {
    if (!isThere || !gone.some(was => sameSubnet(one.dst, was.dst))) return one;
    // A later plugin may have moved the former one to another table, or taken it away.
    const found = leaving.find(was => sameSubnet(one.dst, was.dst));
    return found ? { ...one, table: found.table, priority: found.priority } : [];
  });
  for (const one of leaving) removeRoute(socket, one);
  const behind = added.filter(one => isBehindOthers(one, all, link.index));
  const others = added.filter(one => !behind.includes(one));
  const address = isThere ? [] : [addAddressRequest(link.index, parseCidr(lease.address), {})];
  addRoutes(socket, link, others, address);
  for (const problem of restoreRoutes(socket, mergeWays(behind, link.index))) throw problem;
}

/** Destinations of the lease that the interface has no route to, though it has the address: another plugin gave them to another interface. */
export function missingRoutes(place: OpenInterface, lease: Lease): string[] {
  if (!hasAddress(place, lease)) return [];
  const own = listRoutes(place.socket).filter(one => isOwn(one, place.link.index));
  return plannedRoutes(lease, undefined)
    .filter(({ dst }) => !own.some(one => sameSubnet(one.dst, dst)))
    .map(({ dst }) => renderCidr(dst));
}

function hasAddress({ socket, link }: OpenInterface, { address }: Lease): boolean {
  return listAddresses(socket, link.index).some(({ cidr }) => renderCidr(cidr) === address);
}

/** Whether another interface has a route to the same place that comes before this interface's: a new one must not overtake it. */
function isBehindOthers(
  { dst, table, priority }: PlannedRoute,
  all: readonly Route[],
  index: number,
): boolean {
  const first = all.find(
    one =>
      sameSubnet(one.dst, dst) &&
      one.table === (table || RT_TABLE_MAIN) &&
      (one.priority ?? 0) === (priority ?? 0),
  );
  return first !== undefined && !isOwn(first, index);
}

/** Routes through the interface. The kernel's own belong to the address. */
function isOwn(route: Route, index: number): boolean {
  return route.protocol !== RTPROT_KERNEL && leavesBy(route, index);
}

type PlannedRoute = ReturnType<typeof planRoute>;

function plannedRoutes(lease: Lease, priority: number | undefined): PlannedRoute[] {
  const gateway = lease.gateway ? parseIp(lease.gateway) : undefined;
  const planned = [{ cidr: parseCidr(lease.address), gateway }];
  return (resultOf(lease, priority).routes ?? []).map(route => planRoute(route, planned));
}

/** Whether a destination is reached in the same ways before and after. */
function hasSameWays(
  route: PlannedRoute,
  former: readonly PlannedRoute[],
  wanted: readonly PlannedRoute[],
): boolean {
  const [one, other] = [former, wanted].map(routes =>
    JSON.stringify(routes.filter(each => sameSubnet(each.dst, route.dst)).map(wayOf)),
  );
  return one === other;
}

function wayOf({ gateway }: PlannedRoute): string {
  return gateway ? renderIp(gateway) : 'on the link';
}

/** Whether a route of the kernel is one of a lease, or has it among its ways. */
function isSameWay(found: Route, { dst, gateway }: PlannedRoute): boolean {
  if (!sameSubnet(found.dst, dst)) return false;
  const gateways = [found.gateway, ...(found.ways ?? []).map(way => way.gateway)].filter(
    one => one !== undefined,
  );
  return gateway ? gateways.some(one => sameIp(one, gateway)) : gateways.length === 0;
}
