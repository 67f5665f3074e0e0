// Which network of a container gets a host port when the one that held it is gone?
// A runtime passes its mappings to every network of a container. The first network holds the ports. What the others would have
// put there is stored as successors, so that no plugin has to be asked again.

import { defined } from '../../../src/cni/json.ts';
import { FAMILIES, type Ip } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import {
  addElements,
  deleteElements,
  type Element,
  type Entry,
  findElement,
  listElements,
  type Place,
} from '../../../src/netlink/nft/element.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import {
  type Claim,
  claimIp,
  decodeWay,
  isSameContainer,
  type Owner,
  placeName,
  takenPlace,
} from '../elements.ts';
import { type FamilyPlan, PROTOCOLS, protocolName } from '../plan.ts';
import { SETS } from '../sets.ts';

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
export function transferOwnership(socket: NetlinkSocket, owner: Owner, freed: readonly Place[]): Request[] {
  const left = new Map(freed.map(place => [placeName(place), place]));
  return FAMILIES.flatMap(family => {
    const { successors, means } = SETS[family];
    return listElements(socket, successors).flatMap(successor => {
      if (successor.comment === owner.note || !isSameContainer(successor.comment, owner)) return [];
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
