// Is everything that ADD made still in the kernel?
import type { FilterOwner } from '../../../src/attach/handle.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import type { Entry } from '../../../src/netlink/nft/entries.ts';
import type { NftSet } from '../../../src/netlink/nft/set.ts';
import { skeletonProblems } from '../../../src/netlink/nft/skeleton.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { planElements } from '../elements.ts';
import type { AccessPlan } from '../plan.ts';
import { BEHIND, CLOSED, PORTS, TABLE, TALLY } from '../skeleton.ts';
import { skeletonsFor } from './admit.ts';

/** Differences that one message lists; one missing object often means that all are missing. */
const MOST_LISTED = 5;

/**
 * Compares the skeleton and the elements of an attachment with those in the kernel. Accepts what the previous release made: see
 * {@link isIsolatedByAddress}.
 * @param isStrict accept only what ADD would make now
 * @throws Error naming what is missing or different
 */
export function checkAdmission(
  socket: NetlinkSocket,
  plan: AccessPlan,
  owner: FilterOwner,
  isStrict = false,
): void {
  const isEarlier = !isStrict && isIsolatedByAddress(socket, plan, owner);
  const entries = planElements(plan, owner).filter(({ set }) => !(isEarlier && PORT_SETS.includes(set)));
  const problems = [
    ...skeletonsFor(plan.ingress?.policy ?? 'open').flatMap(skeleton =>
      skeletonProblems(socket, skeleton, isStrict),
    ),
    ...entries.flatMap(entry => elementProblem(socket, entry)),
    ...(plan.ingress ? closedProblem(socket, plan.ingress.bridge) : []),
  ];
  if (problems.length === 0) return;
  const more = problems.length > MOST_LISTED ? ` and ${problems.length - MOST_LISTED} more` : '';
  throw new Error(
    `Cannot confirm rules in tables "${TABLE.name}": ${problems.slice(0, MOST_LISTED).join(', ')}${more}`,
  );
}

/** Whether the previous release isolated the pod: neighbours can reach it by addresses that its result does not name. */
export function isIsolatedByAddress(
  socket: NetlinkSocket,
  { ingress }: AccessPlan,
  owner: FilterOwner,
): boolean {
  return ingress?.port !== undefined && findElement(socket, BEHIND, [owner.handle]) === undefined;
}

const PORT_SETS: readonly NftSet[] = [PORTS, BEHIND];

function elementProblem(socket: NetlinkSocket, { set, element }: Entry): string[] {
  const found = findElement(socket, set, element.key);
  const name = `{ ${renderFields(element.key)} } of "${set.name}"`;
  if (found === undefined) return [`${name} is missing`];
  if (found.comment !== element.comment) return [`${name} belongs to "${found.comment ?? 'nobody'}"`];
  return Bun.deepEquals(found.data, element.data, true) ? [] : [`${name} leads elsewhere`];
}

/** The count is shared by all attachments: here it only matters that it exists. */
function closedProblem(socket: NetlinkSocket, bridge: string): string[] {
  return [CLOSED, TALLY]
    .filter(set => findElement(socket, set, [bridge]) === undefined)
    .map(({ name }) => `{ ${bridge} } of "${name}" is missing`);
}
