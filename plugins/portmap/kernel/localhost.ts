// How can 127.0.0.1 reach a pod?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { findLink } from '../../../src/netlink/rtnl/link.ts';
import { findWay } from '../../../src/netlink/rtnl/route-lookup.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { canWriteSysctl, ensureSysctl, findSysctl } from '../../../src/sys/sysctl.ts';
import type { FamilyPlan, Forward } from '../plan.ts';

const ALL = 'net/ipv4/conf/all/route_localnet';
const DEFAULT = 'net/ipv4/conf/default/route_localnet';

/**
 * Lets packets with a loopback source leave through the interface that leads to the pod: a bridge, or the pod's own veth. IPv6
 * has no such setting. It stays on, since others behind the interface may need it; a rule of the skeleton drops incoming packets
 * for loopback addresses. Does nothing without a route to the pod, or for ports that no loopback address has.
 * Same as: `sysctl -w net.ipv4.conf.<interface>.route_localnet=1`
 */
export function openLocalhost(host: NetlinkSocket, plans: readonly FamilyPlan[]): void {
  const path = findSwitch(host, plans);
  if (path === undefined) return;
  try {
    ensureSysctl(path, '1');
  } catch (cause) {
    throw new CniError(
      ErrorCode.internal,
      `Cannot open host ports to 127.0.0.1: ${(cause as Error).message}`,
      {
        cause,
        details: `set "/proc/sys/${ALL}" to 1 on the node, or map the ports on one of its addresses, or set "snat" to false`,
      },
    );
  }
}

/** Path of the sysctl that {@link openLocalhost} sets, or undefined if there is none to set. */
export function findSwitch(host: NetlinkSocket, plans: readonly FamilyPlan[]): string | undefined {
  const plan = plans.find(({ family }) => family === 4);
  const isLoopback = ({ ip }: Forward) => ip === undefined || ip.value >> 24n === 127n;
  // The kernel takes either this interface's value or that for all.
  if (!plan?.forwards.some(isLoopback) || findSysctl(ALL) === '1') return undefined;
  const way = findWay(host, plan.pod.ip);
  const link = way && findLink(host, way.oif);
  return link && `net/ipv4/conf/${link.name}/route_localnet`;
}

/**
 * Checks that {@link openLocalhost} could do its work, if it has any.
 * @throws Error when /proc/sys is read-only
 */
export function tryLocalhost(): void {
  if ([ALL, DEFAULT].some(path => findSysctl(path) === '1')) return;
  if (!canWriteSysctl(DEFAULT))
    throw new Error(`Cannot set sysctls on this node: "/proc/sys/${DEFAULT}" cannot be written`);
}
