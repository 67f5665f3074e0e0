// How are the elements of an attachment put into the kernel?
import { type FilterOwner, filterOwnerOfNote } from '../../../src/attach/handle.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import { commitAfterReading, tryOut } from '../../../src/netlink/nft/batch.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { addEntries } from '../../../src/netlink/nft/entries.ts';
import { hasSkeleton, type Skeleton, skeletonChanges } from '../../../src/netlink/nft/skeleton.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import type { IngressPolicy } from '../config.ts';
import { planElements } from '../elements.ts';
import type { AccessPlan } from '../plan.ts';
import { BRIDGE_SKELETON, SETS, SKELETON } from '../skeleton.ts';
import { removalOf } from './release.ts';
import { countClosed } from './tally.ts';

/**
 * Puts everything into the kernel in one transaction: the elements of the plan come, and those go that an earlier ADD of
 * this attachment made, or an attachment that had one of the addresses before and was never deleted.
 */
export function admit(socket: NetlinkSocket, plan: AccessPlan, owner: FilterOwner): void {
  const entries = planElements(plan, owner);
  const skeletons = skeletonsFor(plan.ingress?.policy ?? 'open');
  const attempt = (isThere: (skeleton: Skeleton) => boolean) =>
    commitAfterReading(socket, () => {
      const removals = [owner, ...findFormerOwners(socket, plan, owner)].map(one => removalOf(socket, one));
      const gone = removals.flatMap(({ claims }) => claims);
      const { bridge } = plan.ingress ?? {};
      const come = plan.pods.map(() => (bridge === undefined ? {} : { bridge }));
      return [
        ...skeletons.filter(skeleton => !isThere(skeleton)).flatMap(skeletonChanges),
        ...removals.flatMap(({ changes }) => changes),
        ...addEntries(entries),
        ...countClosed(socket, come, gone),
      ];
    });
  try {
    attempt(skeleton => hasSkeleton(socket, skeleton));
  } catch (thrown) {
    // A set is missing that no rule mentions: somebody deleted it, or the skeleton is that of an older release.
    if (!isNetlinkError(thrown, Errno.ENOENT)) throw thrown;
    attempt(() => false);
  }
}

/**
 * Asks the kernel whether it would take the rules for a policy, without installing them.
 * @throws NetlinkError naming what it would refuse
 */
export function tryAdmission(socket: NetlinkSocket, policy: IngressPolicy): void {
  tryOut(socket, skeletonsFor(policy).flatMap(skeletonChanges));
}

/** The tables that a policy needs. */
export function skeletonsFor(policy: IngressPolicy): Skeleton[] {
  return policy === 'isolated' ? [SKELETON, BRIDGE_SKELETON] : [SKELETON];
}

/** Whoever had the pod's addresses before is gone, or they would not have been handed out again. */
export function findFormerOwners(
  socket: NetlinkSocket,
  { pods }: AccessPlan,
  owner: FilterOwner,
): FilterOwner[] {
  const notes = pods.flatMap(pod => findElement(socket, SETS[pod.family].pods, [pod])?.comment ?? []);
  return [...new Set(notes)].filter(note => note !== owner.note).map(filterOwnerOfNote);
}
