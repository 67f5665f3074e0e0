// Which leases are held by no attachment any longer?
import { findHolders } from '../../src/ipam/holders.ts';
import type { LeaseStore } from '../../src/ipam/lease-store.ts';
import type { Owner } from '../../src/ipam/owner.ts';
import type { KeptAttachments } from '../../src/plugin/kept.ts';

/**
 * Addresses whose owner GC does not keep, and torn files that a crash left without an owner. Files with other content are left
 * alone. Leases without an interface count for every interface of their container. The reference's leases do not note when their
 * ADD began, so the date of the lease is used instead.
 * @param addresses listed while no other process changes the leases
 */
export function findGarbage(
  store: Pick<LeaseStore, 'findOwner' | 'isTorn' | 'findTime'>,
  addresses: readonly string[],
  kept: KeptAttachments,
): string[] {
  const isKept = ({ containerId, ifname }: Owner): boolean =>
    ifname === undefined
      ? kept.some(one => one.containerId === containerId)
      : kept.has({ containerId, ifname });
  const isNew = (address: string): boolean => (store.findTime(address) ?? 0) >= kept.since;
  return addresses.filter(address => {
    const owner = store.findOwner(address);
    if (owner === undefined) return store.isTorn(address);
    return !isKept(owner) && !isNew(address);
  });
}

/**
 * Splits addresses into those that an interface in another namespace still has, and the rest. GC of a main plugin of ours has
 * already deleted the interface; one that another plugin made may still exist, and its address must not be reused.
 */
export function splitByUse(addresses: readonly string[]): {
  readonly used: string[];
  readonly free: string[];
} {
  const holders = addresses.length ? findHolders() : undefined;
  const isUsed = (address: string) => holders?.get(address)?.some(({ isHere }) => !isHere) ?? false;
  return {
    used: addresses.filter(isUsed),
    free: addresses.filter(address => !isUsed(address)),
  };
}
