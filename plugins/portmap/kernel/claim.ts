// How are the elements of an attachment put into the kernel, and who may already be there?
import { CniError } from '../../../src/cni/errors.ts';
import type { Cidr } from '../../../src/net/cidr.ts';
import type { Ip } from '../../../src/net/ip.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import { commitAfterReading, tryOut } from '../../../src/netlink/nft/batch.ts';
import type { FieldValue } from '../../../src/netlink/nft/datatype.ts';
import { addElements, type Element, findElement } from '../../../src/netlink/nft/element.ts';
import { countRules } from '../../../src/netlink/nft/rule.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import {
  type Claim,
  type Entry,
  forwardPlace,
  isSameContainer,
  type Masquerading,
  type Owner,
  type Place,
  planElements,
} from '../elements.ts';
import { type FamilyPlan, type Forward, renderHostPort } from '../plan.ts';
import { ALL_SETS, planChains, SETS, skeletonChanges, TABLE } from '../skeleton.ts';
import { countHostIps, listHostIps } from './host-ips.ts';
import { removalOf } from './release.ts';

/** Codes of our own (100 and up are free for plugins); listed in the README. */
export const PortmapCode = {
  /** Another container holds a host port. */
  portTaken: 100,
} as const;

/**
 * Puts everything into the kernel in one transaction: the elements of the plan come, and those go that an earlier ADD of
 * this attachment made, or an attachment that had the pod's address before and was never deleted.
 * @returns claims that went
 * @throws CniError 100 when another container holds a host port
 */
export function claimPorts(
  socket: NetlinkSocket,
  plans: readonly FamilyPlan[],
  owner: Owner,
  masquerading: Masquerading,
): Claim[] {
  const entries = plans.flatMap(plan => planElements(plan, owner, masquerading));
  const forwards = plans.flatMap(plan => plan.forwards);
  let gone: Claim[] = [];
  const pods = plans.map(({ pod }) => pod);
  const attempt = (isSkeletonThere: () => boolean) =>
    commitAfterReading(socket, () => {
      const outdated = [owner, ...findFormerOwners(socket, plans, owner)];
      const shared = findShared(socket, plans, outdated, owner);
      const removals = outdated.map(one => removalOf(socket, one));
      gone = removals.flatMap(({ claims }) => claims);
      const skeleton = isSkeletonThere() ? [] : skeletonChanges(pods);
      return [
        ...skeleton,
        ...removals.flatMap(({ changes }) => changes),
        ...additions(entries.filter(entry => !shared.some(place => isAt(place, entry)))),
        ...countHostIps(socket, forwards, gone),
      ];
    });
  try {
    attempt(() => hasRules(socket, pods));
  } catch (thrown) {
    // A set is missing that no rule mentions: somebody deleted it, or the skeleton is that of an older release.
    if (!isNetlinkError(thrown, Errno.ENOENT)) throw thrown;
    attempt(() => false);
  }
  return gone;
}

/**
 * Asks the kernel whether it would take the skeleton, without installing it.
 * @throws NetlinkError naming what it would refuse
 */
export function trySkeleton(socket: NetlinkSocket): void {
  tryOut(socket, skeletonChanges([]));
}

/** False for the first attachment of all or of its prefix length, and after somebody flushed rules. */
function hasRules(socket: NetlinkSocket, pods: readonly Cidr[]): boolean {
  const counts = countRules(socket, TABLE);
  return planChains(pods).every(({ name, rules }) => counts.get(name) === rules.length);
}

/** Whoever had the pod's addresses before is gone, or they would not have been handed out again. */
function findFormerOwners(socket: NetlinkSocket, plans: readonly FamilyPlan[], owner: Owner): Owner[] {
  const former = new Map<string, Owner>();
  for (const { family, pod } of plans) {
    const { comment: note, data } = findElement(socket, SETS[family].pods, [pod.ip]) ?? {};
    if (note === undefined || note === owner.note) continue;
    former.set(note, { note, handle: String((data as readonly FieldValue[])[0]) });
  }
  return [...former.values()];
}

/**
 * The places that another attachment of the same container has already: a runtime passes its mappings to every network
 * of a container, and the first keeps them.
 * @throws CniError 100 when another container holds a host port
 */
function findShared(
  socket: NetlinkSocket,
  plans: readonly FamilyPlan[],
  outdated: readonly Owner[],
  owner: Owner,
): Place[] {
  const isOutdated = (element: Element) => outdated.some(({ note }) => note === element.comment);
  const shared: Place[] = [];
  for (const { family, forwards } of plans) {
    const hostIps = forwards.some(({ ip }) => ip === undefined) ? listHostIps(socket, family) : [];
    for (const forward of forwards) {
      for (const rival of rivalsOf(forward, hostIps)) {
        const place = forwardPlace(family, rival);
        const holder = findElement(socket, place.set, place.key);
        if (holder === undefined || isOutdated(holder)) continue;
        if (!isSameContainer(holder.comment, owner)) throw portTaken(forward, rival, holder);
        shared.push(place);
      }
    }
  }
  return shared;
}

function isAt({ set, key }: Place, { set: ownSet, element }: Entry): boolean {
  return set === ownSet && Bun.deepEquals(key, element.key);
}

/** The host ports that exclude each other with this one: itself, and the same on all addresses or on any of them. */
function rivalsOf(forward: Forward, hostIps: readonly Ip[]): Forward[] {
  const { ip, ...everywhere } = forward;
  return ip ? [forward, everywhere] : [forward, ...hostIps.map(one => ({ ...forward, ip: one }))];
}

function portTaken(forward: Forward, rival: Forward, holder: Element): CniError {
  return new CniError(
    PortmapCode.portTaken,
    `Cannot map host port ${renderHostPort(forward)}: "${holder.comment ?? 'unknown'}" holds ${renderHostPort(rival)}`,
    { details: 'the holder is named catena:<network>/<container id>/<interface>; its DEL releases the port' },
  );
}

function additions(entries: readonly Entry[]): Request[] {
  return ALL_SETS.flatMap(set =>
    addElements(
      set,
      entries.filter(entry => entry.set === set).map(({ element }) => element),
    ),
  );
}
