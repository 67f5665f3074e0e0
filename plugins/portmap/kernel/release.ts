// How is everything of an attachment removed from the kernel when only its name is known?
import { findOwner } from '../../../src/cni/attachment.ts';
import { commitAfterReading } from '../../../src/netlink/nft/batch.ts';
import { type Element, findElements, listElements } from '../../../src/netlink/nft/element.ts';
import { deletePlaces, type Place } from '../../../src/netlink/nft/entries.ts';
import { listSets, type NftSet } from '../../../src/netlink/nft/set.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import type { KeptAttachments } from '../../../src/plugin/kept.ts';
import {
  type Claim,
  decodeClaim,
  decodeWay,
  type Owner,
  ownerOfNote,
  placeName,
  placesOf,
} from '../elements.ts';
import { chainKey, soleOwner } from '../reference-names.ts';
import { CHAINS, findConditionalSet, SETS, TABLE } from '../sets.ts';
import { transferOwnership } from './heirs.ts';
import { countTaken } from './tallies.ts';

/** The changes that remove an attachment, and the host ports that it held. */
export interface Removal {
  readonly changes: readonly Request[];
  readonly claims: readonly Claim[];
  /** Where its elements were. */
  readonly freed: readonly Place[];
}

/**
 * Removes an attachment in one transaction; a missing one is ignored. Its ports pass to another network of the container that was
 * given them too. The cost does not depend on what else is mapped.
 * @returns the removed claims
 */
export function releasePorts(socket: NetlinkSocket, owner: Owner): readonly Claim[] {
  let claims: readonly Claim[] = [];
  commitAfterReading(socket, () => {
    const removal = removalOf(socket, owner);
    claims = removal.claims;
    const heirs = claims.length ? transferOwnership(socket, owner, removal.freed) : [];
    return [...removal.changes, ...heirs, ...countTaken(socket, [], claims)];
  });
  return claims;
}

/** The changes that remove the existing elements of an attachment, except the counts. Call within `commitAfterReading`. */
export function removalOf(socket: NetlinkSocket, owner: Owner): Removal {
  const claims = findClaims(socket, owner);
  const { attachment } = owner;
  const chains =
    attachment && claims.some(({ backend }) => backend === 'iptables')
      ? [attachment, soleOwner(attachment)].map(one => ({ set: CHAINS, key: [chainKey(one)] }))
      : [];
  const places = uniquePlaces([...claims.flatMap(claim => placesOf(claim, owner)), ...chains]);
  const found = findElements(socket, places);
  const present = places.filter((_, i) => found[i]?.comment === owner.note);
  return { changes: deletePlaces(present), claims, freed: present };
}

/**
 * The claims of an attachment. They are numbered, so each is found at constant cost. The first claim of each family is requested
 * together with the means, then as many more as have been found already.
 */
export function findClaims(socket: NetlinkSocket, owner: Owner): Claim[] {
  const found = { 4: [] as Element[], 6: [] as Element[] };
  const means: { 4?: Element | undefined; 6?: Element | undefined } = {};
  let open: (4 | 6)[] = [4, 6];
  for (let from = 0; open.length; from = from * 2 || 1) {
    const numbers = Array.from({ length: from || 1 }, (_, i) => from + i);
    const claims = open.flatMap(family => numbers.map(number => ({ family, key: [owner.handle, number] })));
    const asked = claims.map(({ family, key }) => ({ set: SETS[family].claims, key }));
    const ways = from ? [] : open.map(family => ({ set: SETS[family].means, key: [owner.handle] }));
    const elements = findElements(socket, [...asked, ...ways]);
    if (from === 0) [means[4], means[6]] = elements.slice(asked.length);
    open = open.filter(family => {
      const own = elements.slice(0, asked.length).filter((_, i) => claims[i]?.family === family);
      const end = own.findIndex(element => element?.comment !== owner.note);
      found[family].push(...own.slice(0, end < 0 ? own.length : end).flatMap(element => element ?? []));
      return end < 0;
    });
  }
  return ([4, 6] as const).flatMap(family =>
    found[family].map(element => decodeClaim(family, element, decodeWay(means[family]))),
  );
}

/** Attachments of the network that still have claims but that GC does not keep. Reads every claim. */
export function findDead(socket: NetlinkSocket, network: string, kept: KeptAttachments): Owner[] {
  const notes = ([4, 6] as const)
    .flatMap(family => listElements(socket, SETS[family].claims))
    .flatMap(({ comment: note }) => (note !== undefined && isDead(note, network, kept) ? note : []));
  return [...new Set(notes)].map(ownerOfNote);
}

/** Removes remaining elements of the network's attachments that GC does not keep, even without a claim. Reads every element. */
export function sweepElements(socket: NetlinkSocket, network: string, kept: KeptAttachments): void {
  commitAfterReading(socket, () => {
    const conditional = listSets(socket, TABLE).flatMap(name => findConditionalSet(name) ?? []);
    return deletePlaces(
      [...SWEPT_SETS, ...conditional].flatMap(set =>
        listElements(socket, set)
          .filter(({ comment: note }) => note !== undefined && isDead(note, network, kept))
          .map(({ key }) => ({ set, key })),
      ),
    );
  });
}

/** Sets whose elements belong to one attachment each. */
const SWEPT_SETS: readonly NftSet[] = [
  ...([4, 6] as const).flatMap(family => {
    const { hostips: _, conditional: __, tally: ___, ...owned } = SETS[family];
    return Object.values(owned);
  }),
  CHAINS,
];

/** Call this only for notes that were listed earlier: see {@link KeptAttachments}. */
function isDead(note: string, network: string, kept: KeptAttachments): boolean {
  const owner = findOwner(note);
  return owner?.network === network && !kept.has(owner);
}

function uniquePlaces(places: readonly Place[]): Place[] {
  return [...new Map(places.map(place => [placeName(place), place])).values()];
}
