// Are there addresses for the next containers, and who holds those in use?
import { isNamespaceGone } from '../../chain/records/gone.ts';
import { readLease } from '../../ipam/lease-files.ts';
import { parseOwner } from '../../ipam/owner.ts';
import { type PoolUse, poolUsesOf } from '../../ipam/range-use.ts';
import { type Check, type Finding, fine, type NodeView } from '../finding.ts';
import { groupBy } from '../group.ts';
import { isHidden } from '../readable.ts';

/** Pools without a free address, or nearly so: gateways and what a list excludes are never free. */
export const pools: Check = {
  id: 'ipam.pools',
  run(node) {
    const { facts, findAbout } = node;
    const all = facts.networks().networks.flatMap(({ list }) => poolUsesOf(list, findAbout));
    const hidden = all.filter(({ leaseDir }) => isHidden(leaseDir));
    if (hidden.length)
      return hidden.map(({ network, leaseDir }): Finding => {
        const found = `addresses in use of network "${network}": this user may not read "${leaseDir}"`;
        return { id: this.id, severity: 'unexamined', found };
      });
    const tight = all.filter(({ used, size }) => used >= size * NEARLY_FULL);
    if (tight.length === 0) return fine(this.id, `${all.length} address pools, all with free addresses`);
    return tight.map(pool => describe(pool, node));
  },
};

const NEARLY_FULL = 0.9;

function describe(pool: PoolUse, { facts }: NodeView): Finding {
  const { network, ranges, used, size } = pool;
  const free = Math.max(0, size - used);
  const what =
    free === 0 ? 'is full: the next ADD fails;' : `has ${free} free address${free === 1 ? '' : 'es'};`;
  const owners = ownersOf(pool);
  const gone = new Set(
    facts
      .attachments()
      .attachments.flatMap(one =>
        one.known.network === network && isNamespaceGone(one) ? one.known.containerId : [],
      ),
  );
  const lost = owners.filter(id => gone.has(id)).length;
  const held = groupBy(owners, id => id);
  const [most] = [...held.values()].sort((a, b) => b.length - a.length);
  const details = [
    `${used} of ${size} addresses are in use`,
    ...(lost > 0 ? [`${lost} of them by containers that are gone`] : []),
    ...(most && most.length > 1 ? [`container "${most[0]}" holds the most, ${most.length}`] : []),
  ];
  return {
    id: pools.id,
    severity: free === 0 ? 'error' : 'warning',
    found: `pool ${ranges.join(', ')} of network "${network}" ${what} ${details.join(', ')}`,
    mend: lost > 0 ? 'catena gc --gone' : `catena ipam ls ${network}`,
  };
}

/** Container ids, one for each lease that can be read. */
function ownersOf({ leaseDir, held }: PoolUse): string[] {
  return held.flatMap(address => {
    try {
      return parseOwner(readLease(leaseDir, address) ?? '')?.containerId ?? [];
    } catch {
      return [];
    }
  });
}
