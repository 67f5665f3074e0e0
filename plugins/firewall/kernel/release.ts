// How is everything of an attachment removed from the kernel when only its name is known?
import { type FilterOwner, filterOwnerOfNote } from '../../../src/attach/handle.ts';
import type { Ip } from '../../../src/net/ip.ts';
import { commitAfterReading } from '../../../src/netlink/nft/batch.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { deletePlaces, type Place } from '../../../src/netlink/nft/entries.ts';
import {
  findNumbered,
  findOwned,
  listOwned,
  listOwners,
  placeOf,
} from '../../../src/netlink/nft/owned-table.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { isStaleNote, type KeptAttachments } from '../../../src/plugin/kept.ts';
import type { Other } from '../config.ts';
import { type Claim, decodeClaim, placesOf } from '../elements.ts';
import { BEHIND, OWNED_SETS, PORTS, SETS } from '../skeleton.ts';
import { countClosed } from './tally.ts';

const CLAIM_SETS = [SETS[4].claims, SETS[6].claims];

/** The changes that remove an attachment, and the claims that it had. */
export interface Removal {
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
