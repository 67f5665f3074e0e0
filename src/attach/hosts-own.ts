// Does a container ask for an address that the host has on the same link?
import { listAddresses } from '../netlink/rtnl/addr.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';
import { type PlannedIp, refuseUnusable } from './addressing.ts';
import { holdingsOf } from './held-subnets.ts';

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
