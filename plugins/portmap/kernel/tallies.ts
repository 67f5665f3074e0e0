// How many host ports are taken on one address alone, and how many mappings of a port have conditions?
import { FAMILIES, type Ip } from '../../../src/net/ip.ts';
import { jump } from '../../../src/netlink/nft/data.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import { listElements } from '../../../src/netlink/nft/element.ts';
import type { Entry, Place } from '../../../src/netlink/nft/entries.ts';
import { recount, type Tally } from '../../../src/netlink/nft/tally.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import type { Taken } from '../elements.ts';
import { PROTOCOLS } from '../plan.ts';
import { SETS } from '../sets.ts';
import { askingChain } from '../skeleton.ts';

/** The addresses of a family on which ports are taken individually: few, whatever the number of ports. */
export function listHostIps(socket: NetlinkSocket, family: 4 | 6): Ip[] {
  return listElements(socket, SETS[family].hostips).map(({ key: [ip] }) => ip as Ip);
}

/**
 * The changes that count added host ports in and removed ones out; a count of zero is deleted. Call within `commitAfterReading`.
 */
export function countTaken(socket: NetlinkSocket, come: readonly Taken[], went: readonly Taken[]): Request[] {
  const sums = new Map<string, Tally & { readonly place: Place }>();
  const add = (key: 'come' | 'went') => (taken: Taken) => {
    for (const place of countedPlaces(taken)) {
      const name = `${place.set.name} ${renderFields(place.key)}`;
      const sum = sums.get(name) ?? { place, come: 0, went: 0 };
      sums.set(name, { ...sum, [key]: sum[key] + 1 });
    }
  };
  come.forEach(add('come'));
  went.forEach(add('went'));
  return [...sums.values()].flatMap(sum => recount(socket, sum.place, sum, evaluation(sum.place)));
}

/** Where a host port is counted. */
export function countedPlaces({ family, ip, protocol, port, backend, condition }: Taken): Place[] {
  const { hostips, tally } = SETS[family];
  return [
    ...(ip ? [{ set: hostips, key: [ip] }] : []),
    ...(backend === 'nftables' && condition ? [{ set: tally, key: [PROTOCOLS[protocol], port] }] : []),
  ];
}

/** The element that has the conditions of a port evaluated; it exists while mappings with conditions are counted. */
function evaluation({ set, key }: Place): Entry | undefined {
  const family = FAMILIES.find(one => SETS[one].tally === set);
  const data = family && jump(askingChain(family));
  return family && data && { set: SETS[family].conditional, element: { key, data } };
}
