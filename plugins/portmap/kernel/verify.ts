// Is everything that ADD made still in the kernel?
import { FAMILIES } from '../../../src/net/ip.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import { type Element, findElements } from '../../../src/netlink/nft/element.ts';
import type { Entry, Place } from '../../../src/netlink/nft/entries.ts';
import { renderTable } from '../../../src/netlink/nft/message.ts';
import { elementProblem, placeOf } from '../../../src/netlink/nft/owned-table.ts';
import type { NftSet } from '../../../src/netlink/nft/set.ts';
import { skeletonProblems } from '../../../src/netlink/nft/skeleton.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { confirmAll } from '../../../src/plugin/confirm.ts';
import { type Claim, isSameContainer, type Owner, planClaims, planElements } from '../elements.ts';
import { PROTOCOLS } from '../plan.ts';
import { findConditionalSet, SETS, TABLE } from '../sets.ts';
import { askingChain, planSkeleton } from '../skeleton.ts';
import { isAsked } from './asking.ts';
import type { Wanted } from './claim.ts';
import { countedPlaces } from './tallies.ts';

/**
 * Compares the skeleton and the elements of an attachment with those in the kernel.
 * @throws Error naming what is missing or different
 */
export function checkPorts(socket: NetlinkSocket, { owner, plans, means, conditions }: Wanted): void {
  const skeleton = planSkeleton({ pods: plans.map(({ pod }) => pod), conditions });
  const claims = plans.flatMap(plan => planClaims(plan, means));
  const entries = plans.flatMap(plan => planElements(plan, owner, means));
  const counted = claims.flatMap(claim => [...countedPlaces(claim), ...askedPlaces(claim)]);
  const found = findElements(socket, [...entries.map(placeOf), ...counted]);
  confirmAll(`port mappings in table ${renderTable(TABLE)}`, [
    ...skeletonProblems(socket, skeleton),
    ...conditions
      .filter(one => !isAsked(socket, one))
      .map(({ family, text }) => `rules of chain "${askingChain(family)}" for "${text}" are not ours`),
    ...entries.flatMap((entry, i) =>
      isShared(entry, found[i], owner) ? [] : (elementProblem(entry, found[i]) ?? []),
    ),
    ...counted.flatMap((place, i) => countProblem(place, found[entries.length + i])),
  ]);
}

/** The first network of a container keeps the ports that were passed to all of them. */
function isShared({ set }: Entry, found: Element | undefined, owner: Owner): boolean {
  return found?.comment !== owner.note && isForward(set) && isSameContainer(found?.comment, owner);
}

function isForward({ name }: NftSet): boolean {
  const sets = FAMILIES.flatMap(family => [
    SETS[family].wildcard,
    SETS[family].specific,
    SETS[family].iptables,
  ]);
  return sets.some(set => set.name === name) || findConditionalSet(name) !== undefined;
}

/** The place that makes the kernel evaluate conditions for the port at all. */
function askedPlaces({ family, protocol, port, backend, condition }: Claim): Place[] {
  if (backend !== 'nftables' || condition === '') return [];
  return [{ set: SETS[family].conditional, key: [PROTOCOLS[protocol], port] }];
}

/** The count is shared by all attachments: here it only matters that it exists. */
function countProblem({ set, key }: Place, found: Element | undefined): string[] {
  return found ? [] : [`{ ${renderFields(key)} } of "${set.name}" is missing`];
}
