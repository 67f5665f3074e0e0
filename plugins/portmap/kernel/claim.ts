// How are the elements of an attachment put into the kernel, and who may already be there?
import type { Ip } from '../../../src/net/ip.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import { commitAfterReading, tryOut } from '../../../src/netlink/nft/batch.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import { type Element, findElements } from '../../../src/netlink/nft/element.ts';
import { addEntries, type Entry, type Place } from '../../../src/netlink/nft/entries.ts';
import { hasSkeleton, skeletonChanges } from '../../../src/netlink/nft/skeleton.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import type { Conditions } from '../conditions.ts';
import {
  type Claim,
  isSameContainer,
  type Means,
  type Owner,
  ownerOfNote,
  planClaims,
  planElements,
  takenPlace,
} from '../elements.ts';
import type { FamilyPlan } from '../plan.ts';
import type { ChainOwner } from '../reference-names.ts';
import { SETS } from '../sets.ts';
import { planSkeleton } from '../skeleton.ts';
import { askingChanges, additions as askingRules } from './asking.ts';
import { chainEntriesOf, chainsOf, isChainThere } from './chains.ts';
import { refuseForeign, throwTaken } from './foreign.ts';
import { planHeirs } from './heirs.ts';
import { type Removal, removalOf } from './release.ts';
import { countTaken, listHostIps } from './tallies.ts';

/** What one attachment wants. */
export interface Wanted {
  readonly owner: Owner;
  readonly plans: readonly FamilyPlan[];
  readonly means: Means;
  /** Of those that nf_tables asks. */
  readonly conditions: readonly Conditions[];
}

/** What went for it. */
export interface Claimed {
  readonly gone: readonly Claim[];
  /** Whose chains of iptables are to go, too. */
  readonly chains: readonly ChainOwner[];
}

/** A holder has no rules in iptables: it is gone, or its ADD has not got there yet. */
export class SuspectError extends Error {
  override readonly name = 'SuspectError';
}

/**
 * Puts everything into the kernel in one transaction: the elements of the plan come, and those go that an earlier ADD of
 * this attachment made, or an attachment that had the pod's address before and was never deleted. Where iptables is to
 * forward, this tells everybody whose the ports are, and no more.
 * @param isAlone no other ADD is between its claim and its rules of iptables
 * @throws CniError 100 when another container holds a host port; SuspectError when that cannot be told unless alone
 */
export function claimPorts(socket: NetlinkSocket, wanted: Wanted, isAlone: boolean): Claimed {
  const { owner, plans, means, conditions } = wanted;
  const entries = plans.flatMap(plan => planElements(plan, owner, means));
  const claims = plans.flatMap(plan => planClaims(plan, means));
  const skeleton = planSkeleton({ pods: plans.map(({ pod }) => pod), conditions });
  let claimed: Claimed = { gone: [], chains: [] };
  const attempt = (isSkeletonThere: () => boolean) =>
    commitAfterReading(socket, () => {
      const outdated = [owner, ...findFormerOwners(socket, plans, owner)];
      const { ghosts, shared } = findHolders(socket, claims, outdated, owner);
      if (ghosts.length && !isAlone) throw new SuspectError('Cannot tell whether a holder of a port is gone');
      outdated.push(...ghosts);
      refuseForeign(socket, claims, outdated);
      const removals = outdated.map(one => removalOf(socket, one));
      const gone = removals.flatMap(one => one.claims);
      const inIptables = outdated.filter((one, i) => hasIptables(one === owner ? claims : [], removals[i]));
      claimed = { gone, chains: inIptables.flatMap(one => chainsOf(socket, one)) };
      return [
        ...(isSkeletonThere() ? [] : skeletonChanges(skeleton)),
        ...askingChanges(socket, conditions),
        ...removals.flatMap(({ changes }) => changes),
        ...addEntries([
          ...entries.filter(entry => !shared.some(place => isAt(place, entry))),
          ...plans.flatMap(plan => planHeirs(plan, claims, owner, shared)),
          ...chainEntriesOf(socket, wanted, outdated),
        ]),
        ...countTaken(socket, claims, gone),
      ];
    });
  try {
    attempt(() => hasSkeleton(socket, skeleton));
  } catch (thrown) {
    // A set is missing that no rule mentions: somebody deleted it, or the skeleton is that of an older release.
    if (!isNetlinkError(thrown, Errno.ENOENT)) throw thrown;
    attempt(() => false);
  }
  return claimed;
}

/**
 * Asks the kernel whether it would take the skeleton and the conditions, without installing them.
 * @throws NetlinkError naming what it would refuse
 */
export function trySkeleton(socket: NetlinkSocket, conditions: readonly Conditions[]): void {
  const changes = skeletonChanges(planSkeleton({ pods: [], conditions }));
  tryOut(socket, [...changes, ...conditions.flatMap(askingRules)]);
}

/** Whether rules of iptables may be there; those that come may meet some that the reference left. */
function hasIptables(come: readonly Claim[], removal: Removal | undefined): boolean {
  return [...come, ...(removal?.claims ?? [])].some(({ backend }) => backend === 'iptables');
}

/** Whoever had the pod's addresses before is gone, or they would not have been handed out again. */
function findFormerOwners(socket: NetlinkSocket, plans: readonly FamilyPlan[], owner: Owner): Owner[] {
  const places = plans.map(({ family, pod }) => ({ set: SETS[family].pods, key: [pod.ip] }));
  const notes = findElements(socket, places).flatMap(element => element?.comment ?? []);
  return [...new Set(notes)].filter(note => note !== owner.note).map(ownerOfNote);
}

/** Who has what is wanted, and does not exclude it. */
interface Holders {
  /** Those that only seem to be there: what iptables forwarded for them is gone. */
  readonly ghosts: readonly Owner[];
  /**
   * Places that another attachment of the same container has already: a runtime passes its mappings to every network of
   * a container, and the first keeps them.
   */
  readonly shared: readonly Place[];
}

/** @throws CniError 100 when another container holds a host port */
function findHolders(
  socket: NetlinkSocket,
  claims: readonly Claim[],
  outdated: readonly Owner[],
  owner: Owner,
): Holders {
  const ghosts = new Map<string, Owner>();
  const shared: Place[] = [];
  const isGone = (note: string | undefined) =>
    note !== undefined && (ghosts.has(note) || outdated.some(one => one.note === note));
  const rivals = ([4, 6] as const).flatMap(family => {
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
    if (ghost) ghosts.set(ghost.note, ghost);
    else if (isSameContainer(holder.comment, owner)) shared.push(place);
    else refuse(pair.claim, pair.rival, holder);
  }
  return { ghosts: [...ghosts.values()], shared };
}

function isAt({ set, key }: Place, { set: own, element }: Entry): boolean {
  return set.name === own.name && renderFields(key) === renderFields(element.key);
}

function refuse(claim: Claim, { protocol, port, ip }: Claim, { comment = 'unknown' }: Element): never {
  throwTaken(
    claim,
    { holder: `"${comment}"`, protocol, port, ...(ip ? { ip } : {}) },
    'the holder is named catena:<network>/<container id>/<interface>; its DEL releases the port, and catena gc where it is gone',
  );
}

/**
 * The host ports that exclude each other with this one: itself, and the same on all addresses or on any of them, whoever
 * forwards it.
 */
function rivalsOf(claim: Claim, hostIps: readonly Ip[]): Claim[] {
  const { ip, ...everywhere } = claim;
  const places = ip ? [claim, everywhere] : [claim, ...hostIps.map(one => ({ ...claim, ip: one }))];
  return (['nftables', 'iptables'] as const).flatMap(backend => places.map(one => ({ ...one, backend })));
}

/** The reference may have deleted the container, or somebody all rules: what is left in our sets forwards nothing. */
function ghostOf(socket: NetlinkSocket, family: 4 | 6, { comment = '' }: Element): Owner | undefined {
  const holder = ownerOfNote(comment);
  return holder.attachment && !isChainThere(socket, family, holder.attachment) ? holder : undefined;
}
