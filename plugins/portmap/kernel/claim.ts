// How are the elements of an attachment put into the kernel, and which existing ones conflict with them?

import { findFormerOwners, type IsGone, type RefuseLiving } from '../../../src/attach/owner.ts';
import { defined } from '../../../src/cni/json.ts';
import { FAMILIES, type Ip } from '../../../src/net/ip.ts';
import {
  addEntries,
  type Element,
  type Entry,
  findElements,
  type Place,
} from '../../../src/netlink/nft/element.ts';
import { renderTable, tryOut } from '../../../src/netlink/nft/message.ts';
import {
  changeOwned,
  elementProblem,
  placeOf,
  skeletonChanges,
  skeletonProblems,
  tableMissing,
} from '../../../src/netlink/nft/skeleton.ts';
import { type NftSet, renderFields } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { confirmAll } from '../../../src/plugin/steps.ts';
import type { Conditions } from '../conditions.ts';
import {
  type Claim,
  isSameContainer,
  type Means,
  type Owner,
  ownerOfNote,
  placeName,
  planClaims,
  planElements,
  takenPlace,
} from '../elements.ts';
import { type FamilyPlan, PROTOCOLS } from '../plan.ts';
import type { ChainOwner } from '../reference-names.ts';
import { askingChain, findConditionalSet, planSkeleton, SETS, TABLE } from '../sets.ts';

import { askingChanges, additions as askingRules, isAsked } from './asking.ts';
import { chainEntriesOf, chainsOf, isChainThere } from './chains.ts';
import { holderIn, refuseForeign, type Stranger, throwTaken } from './foreign.ts';
import { forwardChanges } from './iptables.ts';
import { countedPlaces, countTaken, findClaims, listHostIps, type Removal, removalOf } from './release.ts';
import { planSuccessors, transferOwnership } from './successors.ts';

/** What one attachment wants. */
export interface Wanted {
  readonly owner: Owner;
  readonly plans: readonly FamilyPlan[];
  readonly means: Means;
  /** The conditions that nf_tables evaluates. */
  readonly conditions: readonly Conditions[];
  /** Called before elements of another attachment are treated as stale. */
  readonly refuseLiving: RefuseLiving;
  /** Asked before a port is refused because of another attachment. */
  readonly isGone: IsGone;
}

/** What was removed to make room. */
export interface Claimed {
  readonly gone: readonly Claim[];
  /** Owners whose iptables chains have to be removed as well. */
  readonly chains: readonly ChainOwner[];
  /** Containers whose rules in the reference's own table have to be removed as well. */
  readonly strangers: readonly Stranger[];
}

/** A holder has no rules in iptables: either it is gone, or its ADD has not written them yet. */
export class SuspectError extends Error {
  override readonly name = 'SuspectError';
}

/**
 * Puts everything into the kernel in one transaction: adds the elements of the plan, and removes those of an earlier ADD of this
 * attachment and those of an attachment that had the pod's address before and was never deleted. If iptables forwards, the
 * elements only record who owns the ports.
 * @param isAlone no other ADD is between its claim and its iptables rules
 * @throws CniError 100 when another container holds a host port, 101 when a live attachment has the pod's address; SuspectError
 * when that cannot be decided unless alone
 */
export function claimPorts(socket: NetlinkSocket, wanted: Wanted, isAlone: boolean): Claimed {
  const { owner, plans, means, conditions } = wanted;
  const entries = plans.flatMap(plan => planElements(plan, owner, means));
  const claims = plans.flatMap(plan => planClaims(plan, means));
  const skeleton = planSkeleton({ pods: plans.map(({ pod }) => pod), conditions });
  let claimed: Claimed = { gone: [], chains: [], strangers: [] };
  changeOwned(socket, [skeleton], () => {
    const outdated = [owner, ...formerOwners(socket, wanted)];
    const { ghosts, dead, shared } = findHolders(socket, claims, outdated, wanted);
    if (ghosts.length && !isAlone) throw new SuspectError('Cannot tell whether a holder of a port is gone');
    outdated.push(...ghosts, ...dead);
    const taken = new Set(shared.map(placeName));
    const buried = refuseForeign(socket, claims, outdated, wanted);
    const removals = outdated.map(one => removalOf(socket, one));
    const gone = removals.flatMap(one => one.claims);
    const inIptables = outdated.filter((one, i) => hasIptables(one === owner ? claims : [], removals[i]));
    const chains = [...inIptables.flatMap(one => chainsOf(socket, one)), ...buried.chains];
    claimed = { gone, chains, strangers: buried.strangers };
    const own = entries.filter(entry => !taken.has(placeName(placeOf(entry))));
    const kept = new Set(own.map(entry => placeName(placeOf(entry))));
    const freed = (removals[0]?.freed ?? []).filter(place => !kept.has(placeName(place)));
    return [
      ...askingChanges(socket, conditions),
      ...removals.flatMap(({ changes }) => changes),
      // What the attachment no longer asks for passes to other networks of the container, as on DEL.
      ...(removals[0]?.claims.length ? transferOwnership(socket, owner, freed) : []),
      ...addEntries([
        ...own,
        ...plans.flatMap(plan => planSuccessors(plan, claims, owner, taken)),
        ...chainEntriesOf(socket, wanted, outdated),
      ]),
      ...countTaken(socket, claims, gone),
      ...(means.backend === 'nftables'
        ? forwardChanges(
            socket,
            plans.map(({ family }) => family),
          )
        : []),
    ];
  });
  return claimed;
}

/**
 * Asks the kernel whether it would accept the skeleton and the conditions, without installing them.
 * @throws NetlinkError naming what it would refuse
 */
export function trySkeleton(socket: NetlinkSocket, conditions: readonly Conditions[]): void {
  const changes = skeletonChanges(planSkeleton({ pods: [], conditions }));
  tryOut(socket, [...changes, ...conditions.flatMap(askingRules)]);
}

/** Whether iptables rules may exist already. New claims count too, since the reference may have left rules for them. */
function hasIptables(come: readonly Claim[], removal: Removal | undefined): boolean {
  return [...come, ...(removal?.claims ?? [])].some(({ backend }) => backend === 'iptables');
}

/**
 * Attachments that had the pod's addresses before and were never deleted.
 * @throws CniError 101 when one of them is alive
 */
function formerOwners(socket: NetlinkSocket, { plans, owner, refuseLiving }: Wanted): Owner[] {
  const pods = { 4: SETS[4].pods, 6: SETS[6].pods };
  const ips = plans.map(({ pod }) => pod.ip);
  const former = findFormerOwners(socket, pods, ips, owner.note);
  refuseLiving(former);
  return [...new Set(former.map(one => one.owner))].map(ownerOfNote);
}

/** Attachments that hold a requested port without preventing this one from using it. */
interface Holders {
  /** Stale holders: the iptables chains that forwarded for them no longer exist. */
  readonly ghosts: readonly Owner[];
  /** Attachments whose container no longer exists, although nothing was deleted. */
  readonly dead: readonly Owner[];
  /**
   * Places that another attachment of the same container already holds: a runtime passes its mappings to every network of a
   * container, and the first one keeps them.
   */
  readonly shared: readonly Place[];
}

/** @throws CniError 100 when another container holds a host port */
function findHolders(
  socket: NetlinkSocket,
  claims: readonly Claim[],
  outdated: readonly Owner[],
  { owner, isGone: isDead }: Wanted,
): Holders {
  const ghosts = new Map<string, Owner>();
  const dead = new Map<string, Owner>();
  const shared: Place[] = [];
  const isGone = (note: string | undefined) =>
    note !== undefined && (ghosts.has(note) || dead.has(note) || outdated.some(one => one.note === note));
  const rivals = FAMILIES.flatMap(family => {
    const own = claims.filter(claim => claim.family === family);
    const hostIps = own.some(({ ip }) => ip === undefined) ? listHostIps(socket, family) : [];
    return own.flatMap(claim => rivalsOf(claim, hostIps).map(rival => ({ claim, rival })));
  });
  const places = rivals.map(({ rival }) => takenPlace(rival));
  for (const [i, holder] of findElements(socket, places).entries()) {
    const [pair, place] = [rivals[i], places[i]];
    if (!holder || !pair || !place || isGone(holder.comment)) continue;
    const { backend, family } = pair.rival;
    const ghost = backend === 'iptables' ? ghostOf(socket, family, holder) : undefined;
    const isOfContainer = isSameContainer(holder.comment, owner);
    if (ghost) ghosts.set(ghost.note, ghost);
    // Also one of this container, such as an ADD that failed: the next container takes the port from it, and so from this attachment.
    else if (holder.comment && isDead(holder.comment, podsOf(socket, holder.comment), isOfContainer))
      dead.set(holder.comment, ownerOfNote(holder.comment));
    else if (isOfContainer) shared.push(place);
    else refuse(pair.claim, pair.rival, holder);
  }
  return { ghosts: [...ghosts.values()], dead: [...dead.values()], shared };
}

function podsOf(socket: NetlinkSocket, note: string): Ip[] {
  return findClaims(socket, ownerOfNote(note)).map(({ pod }) => pod);
}

function refuse(claim: Claim, { protocol, port, ip }: Claim, { comment = 'unknown' }: Element): never {
  throwTaken(
    claim,
    { holder: holderIn(comment) ?? `"${comment}"`, protocol, port, ...defined({ ip }) },
    `its DEL releases the port, or "catena gc --gone" if it no longer exists; "catena who :${port}" shows it`,
  );
}

/**
 * The host ports that conflict with this one: itself, and the same port on all addresses or on any single one, in either packet
 * filter.
 */
function rivalsOf(claim: Claim, hostIps: readonly Ip[]): Claim[] {
  const { ip, ...everywhere } = claim;
  const places = ip ? [claim, everywhere] : [claim, ...hostIps.map(one => ({ ...claim, ip: one }))];
  return (['nftables', 'iptables'] as const).flatMap(backend => places.map(one => ({ ...one, backend })));
}

/**
 * The reference may have deleted the container, or all rules may have been flushed: what our sets still record is not forwarded.
 */
function ghostOf(socket: NetlinkSocket, family: 4 | 6, { comment = '' }: Element): Owner | undefined {
  const holder = ownerOfNote(comment);
  return holder.attachment && !isChainThere(socket, family, holder.attachment) ? holder : undefined;
}

/**
 * Compares the skeleton and the elements of an attachment with those in the kernel.
 * @throws Error naming what is missing or different
 */
export function checkPorts(socket: NetlinkSocket, { owner, plans, means, conditions }: Wanted): void {
  const what = `port mappings in table ${renderTable(TABLE)}`;
  const problems = skeletonProblems(socket, planSkeleton({ pods: plans.map(({ pod }) => pod), conditions }));
  if (problems.includes(tableMissing(TABLE))) confirmAll(what, problems);
  const claims = plans.flatMap(plan => planClaims(plan, means));
  const entries = plans.flatMap(plan => planElements(plan, owner, means));
  const counted = claims.flatMap(claim => [...countedPlaces(claim), ...askedPlaces(claim)]);
  const found = findElements(socket, [...entries.map(placeOf), ...counted]);
  confirmAll(what, [
    ...problems,
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
