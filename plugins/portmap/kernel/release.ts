// How is everything of an attachment removed from the kernel when only its name is known?

import { defined } from '../../../src/cni/json.ts';
import { FAMILIES, type Ip } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  addElements,
  correctCounts,
  deleteElements,
  deletePlaces,
  type Element,
  type ElementPlace,
  type Entry,
  findElement,
  findElements,
  listElements,
  recount,
  type Tally,
} from '../../../src/netlink/nft/element.ts';
import { jump } from '../../../src/netlink/nft/expr.ts';
import { commitAfterReading } from '../../../src/netlink/nft/message.ts';
import {
  findNumbered,
  findOwned,
  listOwned,
  listOwners,
  placeOf,
} from '../../../src/netlink/nft/skeleton.ts';
import { listSets, type NftSet } from '../../../src/netlink/nft/table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { isStaleNote, type KeptAttachments } from '../../../src/plugin/define.ts';
import { chainKey, soleOwner } from '../iptables-rules.ts';
import {
  type Claim,
  claimIp,
  decodeClaim,
  decodeWay,
  type FamilyPlan,
  isNoteOfContainer,
  type Owner,
  ownerOfNote,
  PROTOCOLS,
  placeName,
  placesOf,
  protocolName,
  type Taken,
  takenPlace,
} from '../plan.ts';
import { askingChain, CHAINS, findConditionalSet, SETS, TABLE } from '../sets.ts';

// A runtime passes its mappings to every network of a container. The first network holds the ports. What the others would have
// put there is stored as successors, so that no plugin has to be asked again.

/** What to store for claims whose places are in `shared`: another network of the container holds them. */
export function planSuccessors(
  { family, forwards }: FamilyPlan,
  claims: readonly Claim[],
  owner: Owner,
  shared: ReadonlySet<string>,
): Entry[] {
  return claims
    .filter(claim => claim.family === family && shared.has(placeName(takenPlace(claim))))
    .map(claim => {
      const { number, protocol, port, pod } = claim;
      const containerPort = forwards[number]?.containerPort ?? 0;
      const data = [claimIp(claim), PROTOCOLS[protocol], port, pod, containerPort];
      return {
        set: SETS[family].successors,
        element: { key: [owner.handle, number], data, comment: owner.note },
      };
    });
}

/**
 * The changes that transfer the freed places of an attachment to other networks of its container. Call within
 * `commitAfterReading`. Reads all successors, since few containers have any.
 */
export function transferOwnership(
  socket: NetlinkSocket,
  owner: Owner,
  freed: readonly ElementPlace[],
): Request[] {
  const left = new Map(freed.map(place => [placeName(place), place]));
  return FAMILIES.flatMap(family => {
    const { successors, means } = SETS[family];
    return listElements(socket, successors).flatMap(successor => {
      if (successor.comment === owner.note || !isNoteOfContainer(successor.comment, owner)) return [];
      const way = decodeWay(findElement(socket, means, [successor.key[0] ?? '']));
      const [ip, protocol, port, pod, containerPort] = successor.data as readonly [
        Ip,
        number,
        number,
        Ip,
        number,
      ];
      const taken = { family, protocol: protocolName(protocol) ?? 'tcp', port, ...way } as const;
      const place = takenPlace(ip.value === 0n ? taken : { ...taken, ip });
      // The first of several successors gets the place.
      if (!left.delete(placeName(place))) return [];
      const forward: Element = {
        key: place.key,
        ...(way.backend === 'nftables' ? { data: [pod, containerPort] } : {}),
        ...defined({ comment: successor.comment }),
      };
      return [...addElements(place.set, [forward]), ...deleteElements(successors, [successor.key])];
    });
  });
}

const CLAIM_SETS = FAMILIES.map(family => SETS[family].claims);

/** The changes that remove an attachment, and the host ports that it held. */
export interface Removal {
  readonly changes: readonly Request[];
  readonly claims: readonly Claim[];
  /** Where its elements were. */
  readonly freed: readonly ElementPlace[];
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
    const successors = claims.length ? transferOwnership(socket, owner, removal.freed) : [];
    return [...removal.changes, ...successors, ...countTaken(socket, [], claims)];
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
  const present = findOwned(socket, places, owner.note);
  return { changes: deletePlaces(present), claims, freed: present };
}

/** The claims of an attachment. They are numbered, so each is found at constant cost. */
export function findClaims(socket: NetlinkSocket, owner: Owner): Claim[] {
  const numbered = findNumbered(socket, CLAIM_SETS, owner);
  if (numbered.every(own => own.length === 0)) return [];
  const ways = findElements(
    socket,
    FAMILIES.map(family => ({ set: SETS[family].means, key: [owner.handle] })),
  );
  return FAMILIES.flatMap((family, i) =>
    (numbered[i] ?? []).map(element => decodeClaim(family, element, decodeWay(ways[i]))),
  );
}

/** Attachments of the network that still have claims but that GC does not keep. Reads every claim. */
export function findDead(socket: NetlinkSocket, network: string, kept: KeptAttachments): Owner[] {
  return listOwners(socket, CLAIM_SETS, note => isStaleNote(note, network, kept)).map(ownerOfNote);
}

/**
 * Removes the elements of attachments that are gone, even without a claim: another program may have deleted claims. Reads every element.
 * @param isGone by the note of the attachment
 */
export function sweepElements(socket: NetlinkSocket, isGone: (note: string) => boolean): void {
  const conditional = listSets(socket, TABLE).flatMap(name => findConditionalSet(name) ?? []);
  commitAfterReading(socket, () => {
    const gone = listOwned(socket, [...SWEPT_SETS, ...conditional], isGone);
    return [...deletePlaces(gone.map(placeOf)), ...takenCorrections(socket, gone)];
  });
}

/** Whether the attachment is the one that is known to have one of the addresses. */
export function isKnownAt(socket: NetlinkSocket, { note }: Owner, pods: readonly Ip[]): boolean {
  const places = pods.map(ip => ({ set: SETS[ip.family].pods, key: [ip] }));
  return findOwned(socket, places, note).length > 0;
}

/** Sets whose elements belong to one attachment each. */
const SWEPT_SETS: readonly NftSet[] = [
  ...FAMILIES.flatMap(family => {
    const { hostips: _, conditional: __, tally: ___, ...owned } = SETS[family];
    return Object.values(owned);
  }),
  CHAINS,
];

function uniquePlaces(places: readonly ElementPlace[]): ElementPlace[] {
  return [...new Map(places.map(place => [placeName(place), place])).values()];
}

/** The addresses of a family on which ports are taken individually: few, whatever the number of ports. */
export function listHostIps(socket: NetlinkSocket, family: 4 | 6): Ip[] {
  return listElements(socket, SETS[family].hostips).map(({ key: [ip] }) => ip as Ip);
}

/** The changes that count added host ports in and removed ones out; a count of zero is deleted. Call within `commitAfterReading`. */
export function countTaken(socket: NetlinkSocket, come: readonly Taken[], went: readonly Taken[]): Request[] {
  const sums = new Map<string, Tally & { readonly place: ElementPlace }>();
  const add = (key: 'come' | 'went') => (taken: Taken) => {
    for (const place of countedPlaces(taken)) {
      const name = placeName(place);
      const sum = sums.get(name) ?? { place, come: 0, went: 0 };
      sums.set(name, { ...sum, [key]: sum[key] + 1 });
    }
  };
  come.forEach(add('come'));
  went.forEach(add('went'));
  return [...sums].flatMap(([name, sum]) => {
    const isCounted = (place: ElementPlace) => placeName(place) === name;
    const count = () => listClaims(socket).filter(claim => countedPlaces(claim).some(isCounted)).length;
    return recount(socket, sum.place, sum, count, evaluation(sum.place));
  });
}

/** Counts again what {@link countTaken} counts: another program may have deleted claims. Reads every claim if anything is counted. */
export function correctTaken(socket: NetlinkSocket): void {
  commitAfterReading(socket, () => takenCorrections(socket, []));
}

/** @param gone what the same transaction deletes of attachments: their claims do not count */
function takenCorrections(socket: NetlinkSocket, gone: readonly Entry[]): Request[] {
  const notes = new Set(gone.map(({ element }) => element.comment));
  let counts: ReadonlyMap<string, number> | undefined;
  const countOf = (place: ElementPlace) => {
    counts ??= countPlaces(listClaims(socket, note => !notes.has(note)));
    return counts.get(placeName(place)) ?? 0;
  };
  return FAMILIES.flatMap(family => {
    const { hostips, tally, conditional } = SETS[family];
    return [
      ...correctCounts(socket, hostips, countOf),
      ...correctCounts(socket, tally, countOf, conditional, evaluation),
    ];
  });
}

function countPlaces(claims: readonly Claim[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const name of claims.flatMap(countedPlaces).map(placeName))
    counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

function listClaims(socket: NetlinkSocket, isWanted: (note: string) => boolean = () => true): Claim[] {
  return FAMILIES.flatMap(family => {
    const { claims, means } = SETS[family];
    const ways = new Map(listElements(socket, means).map(element => [element.key[0], element]));
    return listOwned(socket, [claims], isWanted).map(({ element }) =>
      decodeClaim(family, element, decodeWay(ways.get(element.key[0]))),
    );
  });
}

export function countedPlaces({ family, ip, protocol, port, backend, condition }: Taken): ElementPlace[] {
  const { hostips, tally } = SETS[family];
  return [
    ...(ip ? [{ set: hostips, key: [ip] }] : []),
    ...(backend === 'nftables' && condition ? [{ set: tally, key: [PROTOCOLS[protocol], port] }] : []),
  ];
}

/** The element that has the conditions of a port evaluated; it exists while mappings with conditions are counted. */
function evaluation({ set, key }: ElementPlace): Entry | undefined {
  const family = FAMILIES.find(one => SETS[one].tally === set);
  const data = family && jump(askingChain(family));
  return family && data && { set: SETS[family].conditional, element: { key, data } };
}
