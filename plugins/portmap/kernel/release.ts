// How does everything of an attachment leave the kernel, when only its name is known?
import { findOwner } from '../../../src/cni/attachment.ts';
import { commitAfterReading } from '../../../src/netlink/nft/batch.ts';
import type { FieldValue } from '../../../src/netlink/nft/datatype.ts';
import { deleteElements, type Element, findElement, listElements } from '../../../src/netlink/nft/element.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { type Claim, decodeClaim, type Owner, type Place, placesOf } from '../elements.ts';
import { ALL_SETS, SETS } from '../skeleton.ts';
import { countHostIps } from './host-ips.ts';

/** What has to be done to remove an attachment, and the host ports that it held. */
export interface Removal {
  readonly changes: readonly Request[];
  readonly claims: readonly Claim[];
}

/**
 * Removes an attachment in one transaction; one that is gone is fine. The cost does not depend on what else is mapped.
 * @returns the claims that went
 */
export function releasePorts(socket: NetlinkSocket, owner: Owner): readonly Claim[] {
  let claims: readonly Claim[] = [];
  commitAfterReading(socket, () => {
    const removal = removalOf(socket, owner);
    claims = removal.claims;
    return [...removal.changes, ...countHostIps(socket, [], claims)];
  });
  return claims;
}

/**
 * The changes that remove what is there of an attachment, but for the count of its addresses; to be called within
 * `commitAfterReading`.
 */
export function removalOf(socket: NetlinkSocket, owner: Owner): Removal {
  const claims = findClaims(socket, owner);
  const places = uniquePlaces(claims.flatMap(claim => placesOf(claim, owner)));
  const present = places.filter(({ set, key }) => findElement(socket, set, key)?.comment === owner.note);
  return { changes: deletions(present), claims };
}

/** The claims of an attachment: they are numbered, so that each is found at constant cost. */
export function findClaims(socket: NetlinkSocket, owner: Owner): Claim[] {
  return ([4, 6] as const).flatMap(family => {
    const claims: Claim[] = [];
    for (;;) {
      const element = findElement(socket, SETS[family].claims, [owner.handle, claims.length]);
      if (element === undefined || element.comment !== owner.note) return claims;
      claims.push(decodeClaim(family, element));
    }
  });
}

/**
 * Removes what belongs to attachments of the network that are not among the valid ones. Looks at every element.
 * @returns the claims that went
 */
export function sweepPorts(socket: NetlinkSocket, network: string, valid: ReadonlySet<string>): Claim[] {
  const isDead = ({ comment: note }: Element) =>
    note !== undefined && findOwner(note)?.network === network && !valid.has(note);
  let claims: Claim[] = [];
  commitAfterReading(socket, () => {
    const dead = ALL_SETS.flatMap(set =>
      listElements(socket, set)
        .filter(isDead)
        .map(element => ({ set, element })),
    );
    claims = ([4, 6] as const).flatMap(family =>
      dead.flatMap(({ set, element }) => (set === SETS[family].claims ? decodeClaim(family, element) : [])),
    );
    return [
      ...deletions(dead.map(({ set, element }) => ({ set, key: element.key }))),
      ...countHostIps(socket, [], claims),
    ];
  });
  return claims;
}

function deletions(places: readonly Place[]): Request[] {
  return ALL_SETS.flatMap(set =>
    deleteElements(
      set,
      places.filter(place => place.set === set).map(({ key }) => key),
    ),
  );
}

function uniquePlaces(places: readonly Place[]): Place[] {
  const text = ({ set, key }: Place) => `${set.name} ${key.map(fieldText).join(' ')}`;
  return [...new Map(places.map(place => [text(place), place])).values()];
}

function fieldText(value: FieldValue): string {
  return typeof value === 'object' ? `${value.family}:${value.value}` : String(value);
}
