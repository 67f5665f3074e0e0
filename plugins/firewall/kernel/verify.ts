// Is everything that ADD made still in the kernel?
import type { FilterOwner } from '../../../src/attach/handle.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { findOwnedProblems } from '../../../src/netlink/nft/owned-table.ts';
import type { NftSet } from '../../../src/netlink/nft/set.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { confirmAll } from '../../../src/plugin/confirm.ts';
import { planElements } from '../elements.ts';
import type { AccessPlan } from '../plan.ts';
import { BEHIND, CLOSED, PORTS, TABLE, TALLY } from '../skeleton.ts';
import { skeletonsFor } from './admit.ts';

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
  const skeletons = skeletonsFor(plan.ingress?.policy ?? 'open');
  confirmAll(`rules in tables "${TABLE.name}"`, [
    ...findOwnedProblems(socket, skeletons, entries, isStrict),
    ...(plan.ingress ? closedProblem(socket, plan.ingress.bridge) : []),
  ]);
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

/** The count is shared by all attachments: here it only matters that it exists. */
function closedProblem(socket: NetlinkSocket, bridge: string): string[] {
  return [CLOSED, TALLY]
    .filter(set => findElement(socket, set, [bridge]) === undefined)
    .map(({ name }) => `{ ${bridge} } of "${name}" is missing`);
}
