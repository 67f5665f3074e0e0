// How are the elements of an attachment put into the kernel?
import { type FilterOwner, filterOwnerOfNote } from '../../../src/attach/handle.ts';
import { findFormerOwners, refuserFor } from '../../../src/attach/living-owner.ts';
import { defined } from '../../../src/cni/defined.ts';
import { FAMILIES } from '../../../src/net/ip.ts';
import { tryOut } from '../../../src/netlink/nft/batch.ts';
import { deleteElements, findElement } from '../../../src/netlink/nft/element.ts';
import { addEntries, deletePlaces, type Entry, type Place } from '../../../src/netlink/nft/entries.ts';
import { changeOwned, listOwned } from '../../../src/netlink/nft/owned-table.ts';
import { type Skeleton, skeletonChanges } from '../../../src/netlink/nft/skeleton.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import type { IngressPolicy } from '../config.ts';
import { type Claim, decodeClaim, planElements } from '../elements.ts';
import type { AccessPlan } from '../plan.ts';
import { BRIDGE_SKELETON, PORTS, SETS, SKELETON } from '../skeleton.ts';
import { refuseStrangers } from './foreign.ts';
import { iptablesChanges } from './iptables.ts';
import { findHome } from './port.ts';
import { isKnown, removalOf } from './release.ts';
import { countClosed } from './tally.ts';

/**
 * Puts everything into the kernel in one transaction, including iptables rules in nf_tables: adds the elements of the plan, and
 * removes those of an earlier ADD of this attachment and those of an attachment that had one of the addresses before and was
 * never deleted.
 * @throws CniError 101 when that attachment is alive
 */
export function allow(call: Call, plan: AccessPlan, owner: FilterOwner, adminChain: string): void {
  const { hostNft: socket, host } = call;
  const skeletons = skeletonsFor(plan.ingress?.policy ?? 'open');
  changeOwned(socket, skeletons, incomplete => {
    const leaving = [owner, ...formerOwners(call, plan, owner)];
    const removals = leaving.map(one => removalOf(socket, one));
    const { home } = plan.ingress ?? {};
    // With the rules of another release, elements may be its as well.
    const isStaying = (note: string) => !leaving.some(one => one.note === note);
    const moves = incomplete.includes(SKELETON) ? moveHomes(host, socket, isStaying) : undefined;
    return [
      ...removals.flatMap(({ changes }) => changes),
      ...deletePlaces(moves?.gone ?? []),
      ...strangersPort(socket, plan, owner),
      ...addEntries([...(moves?.added ?? []), ...planElements(plan, owner)]),
      ...countClosed(
        socket,
        [...plan.pods.map(() => defined({ home })), ...(moves?.come ?? [])],
        [...removals.flatMap(({ claims }) => claims), ...(moves?.went ?? [])],
      ),
      ...(plan.others.includes('iptables')
        ? iptablesChanges(socket, plan, adminChain, pods => {
            if (!isKnown(socket, pods)) refuseStrangers(call, pods);
          })
        : []),
    ];
  });
}

/** A port leads to one pod at a time: an element that names another pod belongs to an earlier device of the same name. */
function strangersPort(socket: NetlinkSocket, { ingress }: AccessPlan, { note }: FilterOwner): Request[] {
  if (ingress?.port === undefined) return [];
  const found = findElement(socket, PORTS, [ingress.port]);
  return found === undefined || found.comment === note ? [] : deleteElements(PORTS, [found.key]);
}

/**
 * Asks the kernel whether it would accept the rules for a policy, without installing them.
 * @throws NetlinkError naming what it would refuse
 */
export function tryAdmission(socket: NetlinkSocket, policy: IngressPolicy): void {
  tryOut(
    socket,
    skeletonsFor(policy).flatMap(one => skeletonChanges(one)),
  );
}

/** The tables that a policy needs. */
export function skeletonsFor(policy: IngressPolicy): Skeleton[] {
  return policy === 'isolated' ? [SKELETON, BRIDGE_SKELETON] : [SKELETON];
}

/**
 * Attachments that had the pod's addresses before and were never deleted.
 * @throws CniError 101 when one of them is alive
 */
export function formerOwners(call: Call, { pods }: AccessPlan, owner: FilterOwner): FilterOwner[] {
  const former = findFormerOwners(call.hostNft, { 4: SETS[4].pods, 6: SETS[6].pods }, pods, owner.note);
  refuserFor(call)(former);
  return [...new Set(former.map(one => one.owner))].map(filterOwnerOfNote);
}

/** Elements to be replaced, and the claims before and after, which are counted. */
interface Moves {
  readonly gone: readonly Place[];
  readonly added: readonly Entry[];
  readonly went: readonly Claim[];
  readonly come: readonly Claim[];
}

/**
 * Moves closed pods to the devices by which the host routes to them. Reads every claim.
 * @param isConcerned by the note of the owner
 */
function moveHomes(host: NetlinkSocket, nft: NetlinkSocket, isConcerned: (note: string) => boolean): Moves {
  const moves = FAMILIES.flatMap(family => {
    const { claims, home: homes } = SETS[family];
    return listOwned(nft, [claims], isConcerned).flatMap(({ element }) => {
      const claim = decodeClaim(element);
      const home = claim.home === undefined ? undefined : findHome(host, claim.pod);
      if (claim.home === undefined || home === undefined || home === claim.home) return [];
      const { data: _, ...owned } = element;
      const entry = (at: string): Entry => ({ set: homes, element: { ...owned, key: [claim.pod, at] } });
      return {
        claim,
        home,
        before: [entry(claim.home), { set: claims, element }],
        after: [entry(home), { set: claims, element: { ...element, data: [claim.pod, home] } }],
      };
    });
  });
  return {
    gone: moves.flatMap(({ before }) => before.map(({ set, element: { key } }) => ({ set, key }))),
    added: moves.flatMap(({ after }) => after),
    went: moves.map(({ claim }) => claim),
    come: moves.map(({ claim, home }) => ({ ...claim, home })),
  };
}
