// How is everything of an attachment removed from the kernel when only its name is known?

import {
  type FilterOwner,
  filterOwnerOfNote,
  findFormerOwners,
  findUnnamedHolder,
  refuserFor,
} from '../../../src/attach/owner.ts';
import { invalidConfig } from '../../../src/cni/errors.ts';
import { defined } from '../../../src/cni/json.ts';
import { cidrContains, type Ip } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  addEntries,
  correctCounts,
  deleteElements,
  deletePlaces,
  type ElementPlace,
  type Entry,
  findElement,
  findElements,
  listElements,
  recount,
} from '../../../src/netlink/nft/element.ts';
import { commitAfterReading, tryOut } from '../../../src/netlink/nft/message.ts';
import {
  changeOwned,
  findNumbered,
  findOwned,
  findOwnedProblems,
  listOwned,
  listOwners,
  placeOf,
  restoreSkeleton,
  type Skeleton,
  skeletonChanges,
} from '../../../src/netlink/nft/skeleton.ts';
import { findHostEnd, findLink, type Link, listLinks } from '../../../src/netlink/rtnl/link.ts';
import { findWay, listRoutes } from '../../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { type Call, isStaleNote, type KeptAttachments } from '../../../src/plugin/define.ts';
import { confirmAll } from '../../../src/plugin/steps.ts';
import type { IngressPolicy, Other } from '../config.ts';
import {
  type AccessPlan,
  BEHIND,
  BRIDGE_SKELETON,
  CLOSED,
  type Claim,
  decodeClaim,
  type Ingress,
  OWNED_SETS,
  PORTS,
  placesOf,
  planElements,
  SETS,
  SKELETON,
  TABLE,
  TALLY,
} from '../plan.ts';
import { hasRulesFor, iptablesChanges, sweepIptables } from './iptables.ts';

const CLAIM_SETS = [SETS[4].claims, SETS[6].claims];

/**
 * Removes an attachment in one transaction; a missing one is ignored. The cost does not depend on the number of other
 * attachments.
 * @returns the claims that it had
 */
export function revoke(socket: NetlinkSocket, owner: FilterOwner): readonly Claim[] {
  let removed: readonly Claim[] = [];
  commitAfterReading(socket, () => {
    const { changes, claims } = removalOf(socket, owner);
    removed = claims;
    return [...changes, ...countClosed(socket, [], claims)];
  });
  return removed;
}

/**
 * The changes that remove the existing elements of an attachment, except the count of its interface. Call within
 * `commitAfterReading`.
 */
export function removalOf(socket: NetlinkSocket, owner: FilterOwner) {
  const claims = findClaims(socket, owner);
  const places = [...claims.flatMap(claim => placesOf(claim, owner)), ...portPlacesOf(socket, owner)];
  return { changes: deletePlaces(findOwned(socket, places, owner.note)), claims };
}

function portPlacesOf(socket: NetlinkSocket, { handle, note }: FilterOwner): ElementPlace[] {
  const behind = { set: BEHIND, key: [handle] };
  const found = findElement(socket, behind.set, behind.key);
  if (found?.comment !== note) return [];
  const [port = ''] = (found.data ?? []) as readonly string[];
  return [behind, { set: PORTS, key: [port] }];
}

/** Whether any of the addresses belongs to an attachment of ours, this one or another. */
export function isKnown(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return pods.some(pod => findElement(socket, SETS[pod.family].pods, [pod]) !== undefined);
}

export function findPods(socket: NetlinkSocket, { note }: FilterOwner, pods: readonly Ip[]): Ip[] {
  const places = pods.map(pod => ({ set: SETS[pod.family].pods, key: [pod] }));
  return findOwned(socket, places, note).map(({ key: [pod] }) => pod as Ip);
}

/** The attachments' claims that each of the other packet filters was told about. */
export function findClaimsIn(
  socket: NetlinkSocket,
  owners: readonly FilterOwner[],
): Readonly<Record<Other, readonly Claim[]>> {
  const all = owners.flatMap(owner => findClaims(socket, owner).map(claim => ({ claim, note: owner.note })));
  const toldTo = (other: Other): Claim[] => {
    const places = all.map(({ claim: { pod } }) => ({ set: SETS[pod.family][other], key: [pod] }));
    const found = findElements(socket, places);
    return all.flatMap(({ claim, note }, i) => (found[i]?.comment === note ? claim : []));
  };
  return { iptables: toldTo('iptables'), firewalld: toldTo('firewalld') };
}

/** Whether another packet filter was told about an address for one of the attachments, and for no later one. */
export function isToldFor(
  socket: NetlinkSocket,
  other: Other,
  owners: readonly FilterOwner[],
  pod: Ip,
): boolean {
  const found = findElement(socket, SETS[pod.family][other], [pod]);
  return owners.some(({ note }) => note === found?.comment);
}

/** Attachments of the network that still have claims but that GC does not keep. Reads every claim. */
export function findDead(socket: NetlinkSocket, network: string, kept: KeptAttachments): FilterOwner[] {
  return listOwners(socket, CLAIM_SETS, note => isStaleNote(note, network, kept)).map(filterOwnerOfNote);
}

/**
 * Removes the elements of attachments that are gone, even without a claim: another program may have deleted claims. Reads every element.
 * @param isGone by the note of the attachment
 * @returns addresses of pods that had any
 */
export function sweep(socket: NetlinkSocket, isGone: (note: string) => boolean): Ip[] {
  let pods: Ip[] = [];
  commitAfterReading(socket, () => {
    const gone = listOwned(socket, OWNED_SETS, isGone);
    pods = gone.flatMap(({ set, element }) =>
      set === SETS[4].pods || set === SETS[6].pods ? [element.key[0] as Ip] : [],
    );
    return [...deletePlaces(gone.map(placeOf)), ...closedCorrections(socket, gone)];
  });
  return pods;
}

/** The claims of an attachment. They are numbered, so each is found at constant cost. */
function findClaims(socket: NetlinkSocket, owner: FilterOwner): Claim[] {
  return findNumbered(socket, CLAIM_SETS, owner).flat().map(decodeClaim);
}

/** The relevant part of a pod's address; without a home, the pod is open. */
interface Behind {
  readonly home?: string;
}

/**
 * The changes that count added addresses in and removed ones out; removing the last one opens the interface. Call within
 * `commitAfterReading`.
 */
function countClosed(socket: NetlinkSocket, come: readonly Behind[], went: readonly Behind[]): Request[] {
  const homes = new Set([...come, ...went].flatMap(({ home }) => home ?? []));
  return [...homes].flatMap(home => {
    const isHere = (one: Behind) => one.home === home;
    const tally = { come: come.filter(isHere).length, went: went.filter(isHere).length };
    const count = () =>
      CLAIM_SETS.flatMap(set => listElements(socket, set))
        .map(decodeClaim)
        .filter(isHere).length;
    const closed = { set: CLOSED, element: { key: [home] } };
    return recount(socket, { set: TALLY, key: [home] }, tally, count, closed);
  });
}

/** Counts again what {@link countClosed} counts: another program may have deleted claims. Reads every claim if anything is counted. */
export function correctClosed(socket: NetlinkSocket): void {
  commitAfterReading(socket, () => closedCorrections(socket, []));
}

/** @param gone what the same transaction deletes of attachments: their claims do not count */
function closedCorrections(socket: NetlinkSocket, gone: readonly Entry[]): Request[] {
  const notes = new Set(gone.map(({ element }) => element.comment));
  const listHomes = () =>
    listOwned(socket, CLAIM_SETS, note => !notes.has(note)).map(({ element }) => decodeClaim(element).home);
  let homes: ReturnType<typeof listHomes> | undefined;
  const countOf = ({ key: [home] }: ElementPlace) => {
    homes ??= listHomes();
    return homes.filter(one => one === home).length;
  };
  return correctCounts(socket, TALLY, countOf, CLOSED, ({ key }) => ({ set: CLOSED, element: { key } }));
}

// Its rules do not name their owner, so what counts is whether a pod can still be there. A pod's address is on-link on some
// interface of the host: a bridge with ports, the pod's own veth, or another device. When only a route through a gateway leads
// there, or only one to a bridge without ports, the pod no longer exists.

/** Removes ownerless rules from iptables, whichever network they were for. */
export function sweepLeftovers({ host, hostNft }: Call): void {
  sweepIptables(hostNft, () => {
    const devices = listLinks(host);
    const masters = new Set(devices.map(({ master }) => master));
    const deserted = devices.filter(({ kind, index }) => kind === 'bridge' && !masters.has(index));
    const inhabited = new Set(devices.filter(link => !deserted.includes(link)).map(({ name }) => name));
    const isDeserted = (index: number) => deserted.some(link => link.index === index);
    const onPlugin = listRoutes(host).filter(({ dst, gateway, ways, oif }) => {
      return dst.prefix > 0 && gateway === undefined && ways === undefined && !isDeserted(oif);
    });
    return {
      hasPod: ip => isKnown(hostNft, [ip]) || onPlugin.some(({ dst }) => cidrContains(dst, ip)),
      hasPods: name => inhabited.has(name) || findElement(hostNft, TALLY, [name]) !== undefined,
    };
  });
}

/**
 * Puts everything into the kernel in one transaction, including iptables rules in nf_tables: adds the elements of the plan, and
 * removes those of an earlier ADD of this attachment and those of an attachment that had one of the addresses before and was
 * never deleted.
 * @throws CniError 101 when that attachment is alive
 */
export function allow(call: Call, plan: AccessPlan, owner: FilterOwner, adminChain: string): void {
  const { hostNft: socket } = call;
  changeOwned(socket, skeletonsFor(plan.ingress?.policy ?? 'open'), () => {
    const leaving = [owner, ...formerOwners(call, plan, owner)];
    const removals = leaving.map(one => removalOf(socket, one));
    const { home } = plan.ingress ?? {};
    return [
      ...removals.flatMap(({ changes }) => changes),
      ...strangersPort(socket, plan, owner),
      ...addEntries(planElements(plan, owner)),
      ...countClosed(
        socket,
        plan.pods.map(() => defined({ home })),
        removals.flatMap(({ claims }) => claims),
      ),
      ...(plan.others.includes('iptables')
        ? iptablesChanges(socket, plan, adminChain, pods => {
            if (!isKnown(socket, pods)) refuseStrangers(call, pods);
          })
        : []),
    ];
  });
}

/** Writes rules again that others have changed, before {@link allow} adds what is missing. */
export function restoreRules(socket: NetlinkSocket, { ingress }: AccessPlan): void {
  for (const skeleton of skeletonsFor(ingress?.policy ?? 'open')) restoreSkeleton(socket, skeleton);
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

function skeletonsFor(policy: IngressPolicy): Skeleton[] {
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

/** Adds the device by which the host routes to the pod. Without such a route, packets come from the bridge itself. */
export function withHome(host: NetlinkSocket, ingress: Ingress, pods: readonly Ip[]): Ingress {
  const home = pods.flatMap(pod => findHome(host, pod) ?? [])[0];
  return { ...ingress, ...defined({ home }) };
}

/** The device by which the host routes to an address on one of its own links; undefined when it is on none. */
function findHome(host: NetlinkSocket, pod: Ip): string | undefined {
  const way = findWay(host, pod);
  return way && !way.local && !way.gateway ? findLink(host, way.oif)?.name : undefined;
}

/**
 * Adds the port that `isolated` needs: the other end of the pod's interface, or the interface of the result that is a port of the
 * bridge. Behind an interface that is not a bridge there are neither neighbours nor ports.
 * @throws CniError 7 when no port of the bridge belongs to the pod
 */
export function withPort(call: Call, ingress: Ingress): Ingress {
  if (ingress.policy !== 'isolated') return ingress;
  const bridge = findLink(call.host, ingress.bridge);
  if (bridge?.kind !== 'bridge') return ingress;
  const isPort = (link: Link | undefined): link is Link => link?.master === bridge.index;
  const reported = () =>
    (call.prevResult?.interfaces ?? []).flatMap(({ name, sandbox }) =>
      sandbox ? [] : (findLink(call.host, name) ?? []),
    );
  const inside = call.findContainerNetns() && findLink(call.container, call.env.ifname);
  const port = [inside && findHostEnd(call, inside)].find(isPort) ?? reported().find(isPort);
  if (port !== undefined) return { ...ingress, port: port.name };
  throw invalidConfig(
    `Cannot isolate "${call.env.ifname}": bridge "${ingress.bridge}" has no port that leads to it`,
    {
      details:
        'place this plugin after one that connects the pod to the bridge and reports the interface it created',
    },
  );
}

/**
 * Compares the skeleton and the elements of an attachment with those in the kernel.
 * @throws Error naming what is missing or different
 */
export function checkAdmission(socket: NetlinkSocket, plan: AccessPlan, owner: FilterOwner): void {
  const skeletons = skeletonsFor(plan.ingress?.policy ?? 'open');
  const { home = '' } = plan.ingress ?? {};
  const counts = plan.ingress ? [CLOSED, TALLY] : [];
  const uncounted = counts.filter(set => findElement(socket, set, [home]) === undefined);
  confirmAll(`rules in tables "${TABLE.name}"`, [
    ...findOwnedProblems(socket, skeletons, planElements(plan, owner)),
    // The count is shared by all attachments: here it only matters that it exists.
    ...uncounted.map(({ name }) => `{ ${home} } of "${name}" is missing`),
  ]);
}

// The rules name an address but no owner. If nf_tables does not know the address either, its current holder is looked up.

/**
 * Rejects addresses of another live pod that legacy iptables already accepts; rules in nf_tables are checked in the transaction
 * that adds to them.
 * @throws CniError 101
 */
export function refuseOldRules(call: Call, pods: readonly Ip[]): void {
  if (isKnown(call.hostNft, pods) || !hasRulesFor(call.hostNft, pods, 'old')) return;
  refuseStrangers(call, pods);
}

/** @throws CniError 101 when an interface in another namespace, which no alias names, has one of the addresses */
function refuseStrangers(call: Call, pods: readonly Ip[]): void {
  refuserFor(call)(pods.map(ip => ({ ip, owner: undefined })));
}

/** Whether rules of a pod that is not ours may be removed because no other pod has the addresses. */
export function isForgettable(call: Call, pods: readonly Ip[]): boolean {
  if (pods.length === 0 || isKnown(call.hostNft, pods)) return false;
  return !hasRulesFor(call.hostNft, pods) || findUnnamedHolder(call, pods) === undefined;
}
