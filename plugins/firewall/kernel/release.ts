// How is everything of an attachment removed from the kernel when only its name is known?

import { type FilterOwner, filterOwnerOfNote } from '../../../src/attach/owner.ts';
import { cidrContains, type Ip } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import { deletePlaces, findElement, type Place, recount } from '../../../src/netlink/nft/element.ts';
import { commitAfterReading } from '../../../src/netlink/nft/message.ts';
import {
  findNumbered,
  findOwned,
  listOwned,
  listOwners,
  placeOf,
} from '../../../src/netlink/nft/skeleton.ts';
import { listLinks } from '../../../src/netlink/rtnl/link.ts';
import { listRoutes } from '../../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { type Call, isStaleNote, type KeptAttachments } from '../../../src/plugin/define.ts';
import type { Other } from '../config.ts';
import { type Claim, decodeClaim, placesOf } from '../plan.ts';
import { BEHIND, CLOSED, OWNED_SETS, PORTS, SETS, TALLY } from '../skeleton.ts';
import { sweepIptables } from './iptables.ts';

const CLAIM_SETS = [SETS[4].claims, SETS[6].claims];

/** The changes that remove an attachment, and the claims that it had. */
interface Removal {
  readonly changes: readonly Request[];
  readonly claims: readonly Claim[];
}

/**
 * Removes an attachment in one transaction; a missing one is ignored. The cost does not depend on the number of other
 * attachments.
 */
export function revoke(socket: NetlinkSocket, owner: FilterOwner): void {
  commitAfterReading(socket, () => {
    const { changes, claims } = removalOf(socket, owner);
    return [...changes, ...countClosed(socket, [], claims)];
  });
}

/**
 * The changes that remove the existing elements of an attachment, except the count of its interface. Call within
 * `commitAfterReading`.
 */
export function removalOf(socket: NetlinkSocket, owner: FilterOwner): Removal {
  const claims = findClaims(socket, owner);
  const places = [...claims.flatMap(claim => placesOf(claim, owner)), ...portPlacesOf(socket, owner)];
  return { changes: deletePlaces(findOwned(socket, places, owner.note)), claims };
}

/** The places that record the port of an isolated pod. */
function portPlacesOf(socket: NetlinkSocket, { handle, note }: FilterOwner): Place[] {
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

/** The attachments' claims that another packet filter was told about. */
export function findClaimsIn(socket: NetlinkSocket, other: Other, owners: readonly FilterOwner[]): Claim[] {
  return owners.flatMap(owner =>
    findClaims(socket, owner).filter(({ pod }) => {
      return findElement(socket, SETS[pod.family][other], [pod])?.comment === owner.note;
    }),
  );
}

/** Attachments of the network that still have claims but that GC does not keep. Reads every claim. */
export function findDead(socket: NetlinkSocket, network: string, kept: KeptAttachments): FilterOwner[] {
  return listOwners(socket, CLAIM_SETS, note => isStaleNote(note, network, kept)).map(filterOwnerOfNote);
}

/** Removes the elements of the network's attachments that GC does not keep. Reads every element. */
export function sweep(socket: NetlinkSocket, network: string, kept: KeptAttachments): void {
  commitAfterReading(socket, () => {
    const dead = listOwned(socket, OWNED_SETS, note => isStaleNote(note, network, kept));
    const claims = dead
      .filter(({ set }) => CLAIM_SETS.includes(set))
      .map(({ element }) => decodeClaim(element));
    return [...deletePlaces(dead.map(placeOf)), ...countClosed(socket, [], claims)];
  });
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
export function countClosed(
  socket: NetlinkSocket,
  come: readonly Behind[],
  went: readonly Behind[],
): Request[] {
  const homes = new Set([...come, ...went].flatMap(({ home }) => home ?? []));
  return [...homes].flatMap(home => {
    const isHere = (one: Behind) => one.home === home;
    const tally = { come: come.filter(isHere).length, went: went.filter(isHere).length };
    return recount(socket, { set: TALLY, key: [home] }, tally, { set: CLOSED, element: { key: [home] } });
  });
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
