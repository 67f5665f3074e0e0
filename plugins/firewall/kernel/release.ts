// How does everything of an attachment leave the kernel, when only its name is known?
import { type FilterOwner, filterOwnerOfNote } from '../../../src/attach/handle.ts';
import { findOwner } from '../../../src/cni/attachment.ts';
import type { Ip } from '../../../src/net/ip.ts';
import { commitAfterReading } from '../../../src/netlink/nft/batch.ts';
import { type Element, findElement, listElements } from '../../../src/netlink/nft/element.ts';
import { deletePlaces } from '../../../src/netlink/nft/entries.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import type { Other } from '../config.ts';
import { type Claim, decodeClaim, placesOf } from '../elements.ts';
import { OWNED_SETS, SETS } from '../skeleton.ts';
import { countClosed } from './tally.ts';

/** What has to be done to remove an attachment, and what it had. */
export interface Removal {
  readonly changes: readonly Request[];
  readonly claims: readonly Claim[];
}

/**
 * Removes an attachment in one transaction; one that is gone is fine. The cost does not depend on how many others there
 * are.
 */
export function shutOut(socket: NetlinkSocket, owner: FilterOwner): void {
  commitAfterReading(socket, () => {
    const { changes, claims } = removalOf(socket, owner);
    return [...changes, ...countClosed(socket, [], claims)];
  });
}

/**
 * The changes that remove what is there of an attachment, but for the count of its interface; to be called within
 * `commitAfterReading`.
 */
export function removalOf(socket: NetlinkSocket, owner: FilterOwner): Removal {
  const claims = findClaims(socket, owner);
  const present = claims
    .flatMap(claim => placesOf(claim, owner))
    .filter(({ set, key }) => findElement(socket, set, key)?.comment === owner.note);
  return { changes: deletePlaces(present), claims };
}

/** Whether any of the addresses is somebody's that we let in, be it this attachment or another. */
export function isKnown(socket: NetlinkSocket, pods: readonly Ip[]): boolean {
  return pods.some(pod => findElement(socket, SETS[pod.family].pods, [pod]) !== undefined);
}

/** Those claims of attachments that another packet filter was told of. */
export function findClaimsIn(socket: NetlinkSocket, other: Other, owners: readonly FilterOwner[]): Claim[] {
  return owners.flatMap(owner =>
    findClaims(socket, owner).filter(({ pod }) => {
      return findElement(socket, SETS[pod.family][other], [pod])?.comment === owner.note;
    }),
  );
}

/** The attachments of the network that something is there of, and that are not among the valid ones. Looks at every claim. */
export function findDead(socket: NetlinkSocket, network: string, valid: ReadonlySet<string>): FilterOwner[] {
  const notes = ([4, 6] as const)
    .flatMap(family => listElements(socket, SETS[family].claims))
    .flatMap(({ comment: note }) => note ?? [])
    .filter(note => findOwner(note)?.network === network && !valid.has(note));
  return [...new Set(notes)].map(filterOwnerOfNote);
}

/** Removes what belongs to attachments of the network that are not among the valid ones. Looks at every element. */
export function sweep(socket: NetlinkSocket, network: string, valid: ReadonlySet<string>): void {
  const isDead = ({ comment: note }: Element) =>
    note !== undefined && findOwner(note)?.network === network && !valid.has(note);
  commitAfterReading(socket, () => {
    const dead = OWNED_SETS.flatMap(set =>
      listElements(socket, set)
        .filter(isDead)
        .map(element => ({ set, element })),
    );
    const claims = dead
      .filter(({ set }) => set === SETS[4].claims || set === SETS[6].claims)
      .map(({ element }) => decodeClaim(element));
    return [
      ...deletePlaces(dead.map(({ set, element }) => ({ set, key: element.key }))),
      ...countClosed(socket, [], claims),
    ];
  });
}

/** The claims of an attachment: they are numbered, so that each is found at constant cost. */
function findClaims(socket: NetlinkSocket, owner: FilterOwner): Claim[] {
  return ([4, 6] as const).flatMap(family => {
    const claims: Claim[] = [];
    for (;;) {
      const element = findElement(socket, SETS[family].claims, [owner.handle, claims.length]);
      if (element === undefined || element.comment !== owner.note) return claims;
      claims.push(decodeClaim(element));
    }
  });
}
