// Which leases does nobody hold any more?
import type { AttachmentKey } from '../../src/cni/plugin-config.ts';
import type { LeaseStore } from '../../src/ipam/lease-store.ts';
import type { Owner } from '../../src/ipam/owner.ts';

/**
 * Addresses whose owner is not in the list, and those that a crash left without one. Files that say something else are
 * nobody's business. Leases without an interface count for every interface of their container.
 */
export function findOrphans(
  store: Pick<LeaseStore, 'findOwner' | 'isTorn'>,
  addresses: readonly string[],
  valid: readonly AttachmentKey[],
): string[] {
  // Sets, because a node may have as many attachments as it has leases.
  const containers = new Set(valid.map(({ containerID }) => containerID));
  const attachments = new Set(valid.map(({ containerID, ifname }) => `${containerID}/${ifname}`));
  const isValid = ({ containerId, ifname }: Owner): boolean =>
    ifname === undefined ? containers.has(containerId) : attachments.has(`${containerId}/${ifname}`);
  return addresses.filter(address => {
    const owner = store.findOwner(address);
    return owner === undefined ? store.isTorn(address) : !isValid(owner);
  });
}
