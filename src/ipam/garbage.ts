// Which leases are held by no attachment any longer?
import { findHolders } from './holders.ts';
import type { LeaseStore } from './lease-store.ts';
import type { Owner } from './owner.ts';

/**
 * The reference reserves an address before it configures it, and leaves no note of its ADD. A lease without a note that was
 * written less than this many milliseconds before GC began may be of an ADD in progress, which no list of valid attachments can
 * name; the next GC collects it if it is not. An ADD takes well below a second from the lease to the address, or two with
 * duplicate address detection.
 */
const UNNOTED_ADD_MS = 10_000;

/** What GC keeps, as a plugin's call has it. */
export interface Kept {
  /** When GC began, in milliseconds of the clock of the kernel's file times. */
  readonly since: number;
  has(owner: Required<Owner>): boolean;
  /** Whether it was noted when its ADD began. */
  isNoted(owner: Required<Owner>): boolean;
  some(test: (owner: Required<Owner>) => boolean): boolean;
}

/**
 * Addresses whose owner GC does not keep, and torn files that a crash left without an owner. Files with other content are left
 * alone. Leases without an interface count for every interface of their container. For leases of the reference, which does not
 * note when an ADD began, the date of the lease is used instead, with {@link UNNOTED_ADD_MS}.
 * @param addresses listed while no other process changes the leases
 */
export function findGarbage(
  store: Pick<LeaseStore, 'findOwner' | 'isTorn' | 'findTime'>,
  addresses: readonly string[],
  kept: Kept,
): string[] {
  const isKept = ({ containerId, ifname }: Owner): boolean =>
    ifname === undefined
      ? kept.some(one => one.containerId === containerId)
      : kept.has({ containerId, ifname });
  const isNoted = ({ containerId, ifname }: Owner): boolean =>
    ifname !== undefined && kept.isNoted({ containerId, ifname });
  const isNew = (address: string, owner: Owner): boolean => {
    const age = kept.since - (store.findTime(address) ?? 0);
    return isNoted(owner) ? age <= 0 : age <= UNNOTED_ADD_MS;
  };
  return addresses.filter(address => {
    const owner = store.findOwner(address);
    if (owner === undefined) return store.isTorn(address);
    return !isKept(owner) && !isNew(address, owner);
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
