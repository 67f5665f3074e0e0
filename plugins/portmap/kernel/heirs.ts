// Which network of a container gets a host port when the one that had it is gone?
//
// A runtime passes its mappings to every network of a container. The first has the ports; what the others would have put
// in its place is kept, so that none of it has to be asked for again.

import type { Ip } from '../../../src/net/ip.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import {
  addElements,
  deleteElements,
  type Element,
  findElement,
  listElements,
} from '../../../src/netlink/nft/element.ts';
import type { Entry, Place } from '../../../src/netlink/nft/entries.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { type Claim, claimIp, decodeWay, isSameContainer, type Owner, takenPlace } from '../elements.ts';
import { type FamilyPlan, PROTOCOLS, protocolName } from '../plan.ts';
import { SETS } from '../sets.ts';

/** What to keep for the claims whose places are shared: they belong to another network of the container. */
export function planHeirs(
  { family, forwards }: FamilyPlan,
  claims: readonly Claim[],
  owner: Owner,
  shared: readonly Place[],
): Entry[] {
  return claims
    .filter(claim => claim.family === family && isAmong(shared, takenPlace(claim)))
    .map(claim => {
      const { number, protocol, port, pod } = claim;
      const containerPort = forwards[number]?.containerPort ?? 0;
      const data = [claimIp(claim), PROTOCOLS[protocol], port, pod, containerPort];
      return {
        set: SETS[family].heirs,
        element: { key: [owner.handle, number], data, comment: owner.note },
      };
    });
}

/**
 * The changes that hand places of an attachment, which are being freed, on to other networks of its container; to be
 * called within `commitAfterReading`. Few containers have heirs: all are looked at.
 */
export function handOn(socket: NetlinkSocket, owner: Owner, freed: readonly Place[]): Request[] {
  const left = new Map(freed.map(place => [nameOf(place), place]));
  return ([4, 6] as const).flatMap(family => {
    const { heirs, means } = SETS[family];
    return listElements(socket, heirs).flatMap(heir => {
      if (heir.comment === owner.note || !isSameContainer(heir.comment, owner)) return [];
      const way = decodeWay(findElement(socket, means, [heir.key[0] ?? '']));
      const [ip, protocol, port, pod, containerPort] = heir.data as readonly [Ip, number, number, Ip, number];
      const taken = { family, protocol: protocolName(protocol) ?? 'tcp', port, ...way } as const;
      const place = takenPlace(ip.value === 0n ? taken : { ...taken, ip });
      // Of several heirs the first gets it.
      if (!left.delete(nameOf(place))) return [];
      const forward: Element = {
        key: place.key,
        ...(way.backend === 'nftables' ? { data: [pod, containerPort] } : {}),
        ...(heir.comment === undefined ? {} : { comment: heir.comment }),
      };
      return [...addElements(place.set, [forward]), ...deleteElements(heirs, [heir.key])];
    });
  });
}

function isAmong(places: readonly Place[], place: Place): boolean {
  return places.some(one => nameOf(one) === nameOf(place));
}

function nameOf({ set, key }: Place): string {
  return `${set.name} ${renderFields(key)}`;
}
