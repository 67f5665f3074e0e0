// Is everything that ADD made still in the kernel?
import type { FilterOwner } from '../../../src/attach/handle.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import type { Entry } from '../../../src/netlink/nft/entries.ts';
import { skeletonProblems } from '../../../src/netlink/nft/skeleton.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { planElements } from '../elements.ts';
import type { AccessPlan } from '../plan.ts';
import { CLOSED, TABLE, TALLY } from '../skeleton.ts';
import { skeletonsFor } from './admit.ts';

/** Differences that one message lists; one thing missing often means that all is. */
const MOST_LISTED = 5;

/**
 * Compares the skeleton and the elements of an attachment with what the kernel has.
 * @throws Error naming what is missing or different
 */
export function checkAdmission(socket: NetlinkSocket, plan: AccessPlan, owner: FilterOwner): void {
  const problems = [
    ...skeletonsFor(plan.ingress?.policy ?? 'open').flatMap(skeleton => skeletonProblems(socket, skeleton)),
    ...planElements(plan, owner).flatMap(entry => elementProblem(socket, entry)),
    ...(plan.ingress ? closedProblem(socket, plan.ingress.bridge) : []),
  ];
  if (problems.length === 0) return;
  const more = problems.length > MOST_LISTED ? ` and ${problems.length - MOST_LISTED} more` : '';
  throw new Error(
    `Cannot confirm rules in tables "${TABLE.name}": ${problems.slice(0, MOST_LISTED).join(', ')}${more}`,
  );
}

function elementProblem(socket: NetlinkSocket, { set, element }: Entry): string[] {
  const found = findElement(socket, set, element.key);
  const name = `{ ${renderFields(element.key)} } of "${set.name}"`;
  if (found === undefined) return [`${name} is missing`];
  if (found.comment !== element.comment) return [`${name} belongs to "${found.comment ?? 'nobody'}"`];
  return Bun.deepEquals(found.data, element.data, true) ? [] : [`${name} leads elsewhere`];
}

/** The count itself is everybody's business: only that there is one matters here. */
function closedProblem(socket: NetlinkSocket, bridge: string): string[] {
  return [CLOSED, TALLY]
    .filter(set => findElement(socket, set, [bridge]) === undefined)
    .map(({ name }) => `{ ${bridge} } of "${name}" is missing`);
}
