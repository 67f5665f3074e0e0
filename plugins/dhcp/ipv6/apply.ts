// How does an interface follow an IPv6 lease?
import { parseCidr } from '../../../src/net/cidr.ts';
import { parseIp, sameIp } from '../../../src/net/ip.ts';
import { type Address, limitAddress, listAddresses, removeAddress } from '../../../src/netlink/rtnl/addr.ts';
import { bootClock } from '../../../src/upkeep/boot-clock.ts';
import type { OpenPlace } from '../give-back.ts';
import { FOREVER, type Lease } from './lease.ts';

/**
 * Gives the interface the address of a lease, with what is left of its lifetimes: the kernel itself removes the address of a lease that
 * has ended, whether a daemon runs or not.
 * @param prefix length
 */
export function applyLease(
  { socket, link }: OpenPlace,
  { address, since, duration, preferred }: Lease,
  prefix: number,
): void {
  const age = Math.floor(bootClock() - since);
  const left = (lifetime: number | undefined) =>
    lifetime === undefined ? FOREVER : Math.max(0, lifetime - age);
  // The kernel refuses an address that is valid for no time.
  const valid = Math.max(1, left(duration));
  const lifetimes = { valid, preferred: Math.min(valid, left(preferred)) };
  limitAddress(socket, link.index, parseCidr(`${address}/${prefix}`), lifetimes);
}

/** Whether the interface has the address of a lease. */
export function hasAddress(place: OpenPlace, lease: Lease): boolean {
  return find(place, lease) !== undefined;
}

/** Takes the address of a lease that is over from the interface. */
export function withdrawAddress(place: OpenPlace, lease: Lease): void {
  const found = find(place, lease);
  if (found) removeAddress(place.socket, place.link.index, found.cidr);
}

function find({ socket, link }: OpenPlace, { address }: Lease): Address | undefined {
  const ip = parseIp(address);
  return listAddresses(socket, link.index).find(one => sameIp(one.cidr.ip, ip));
}
