// Is everything that ADD made still in the kernel?
import type { FilterOwner } from '../../../src/attach/handle.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { findOwnedProblems } from '../../../src/netlink/nft/owned-table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { confirmAll } from '../../../src/plugin/confirm.ts';
import { planElements } from '../elements.ts';
import type { AccessPlan } from '../plan.ts';
import { CLOSED, TABLE, TALLY } from '../skeleton.ts';
import { skeletonsFor } from './admit.ts';

/**
 * Compares the skeleton and the elements of an attachment with those in the kernel.
 * @throws Error naming what is missing or different
 */
export function checkAdmission(socket: NetlinkSocket, plan: AccessPlan, owner: FilterOwner): void {
  const skeletons = skeletonsFor(plan.ingress?.policy ?? 'open');
  confirmAll(`rules in tables "${TABLE.name}"`, [
    ...findOwnedProblems(socket, skeletons, planElements(plan, owner)),
    ...(plan.ingress ? closedProblem(socket, plan.ingress.home) : []),
  ]);
}

/** The count is shared by all attachments: here it only matters that it exists. */
function closedProblem(socket: NetlinkSocket, home: string): string[] {
  return [CLOSED, TALLY]
    .filter(set => findElement(socket, set, [home]) === undefined)
    .map(({ name }) => `{ ${home} } of "${name}" is missing`);
}
