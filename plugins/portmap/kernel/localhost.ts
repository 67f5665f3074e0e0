// How can 127.0.0.1 reach a pod?
import { findLink } from '../../../src/netlink/rtnl/link.ts';
import { findWay } from '../../../src/netlink/rtnl/route-lookup.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { canWriteSysctl, ensureSysctl } from '../../../src/sys/sysctl.ts';
import type { FamilyPlan } from '../plan.ts';

/**
 * Lets packets with a loopback source leave through the interface that leads to the pod: a bridge, or the pod's own veth. IPv6
 * has no such setting. It stays on, since others behind the interface may need it; a rule of the skeleton drops incoming packets
 * for loopback addresses. Does nothing without a route to the pod.
 * Same as: `sysctl -w net.ipv4.conf.<interface>.route_localnet=1`
 */
export function openLocalhost(host: NetlinkSocket, plans: readonly FamilyPlan[]): void {
  const path = findSwitch(host, plans);
  if (path) ensureSysctl(path, '1');
}

/** Path of the sysctl that {@link openLocalhost} sets, or undefined if there is none to set. */
export function findSwitch(host: NetlinkSocket, plans: readonly FamilyPlan[]): string | undefined {
  const pod = plans.find(({ family }) => family === 4)?.pod.ip;
  const way = pod && findWay(host, pod);
  const link = way && findLink(host, way.oif);
  return link && `net/ipv4/conf/${link.name}/route_localnet`;
}

/**
 * Checks that {@link openLocalhost} could do its work.
 * @throws Error when /proc/sys is read-only
 */
export function tryLocalhost(): void {
  const path = 'net/ipv4/conf/default/route_localnet';
  if (!canWriteSysctl(path))
    throw new Error(`Cannot set sysctls on this node: "/proc/sys/${path}" cannot be written`);
}
