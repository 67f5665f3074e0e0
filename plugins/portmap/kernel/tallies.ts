// How many host ports are taken on one address alone, and how many mappings of a port have conditions?
import type { Ip } from '../../../src/net/ip.ts';
import { jump } from '../../../src/netlink/nft/data.ts';
import { renderFields } from '../../../src/netlink/nft/datatype.ts';
import { addElements, deleteElements, findElement, listElements } from '../../../src/netlink/nft/element.ts';
import type { Place } from '../../../src/netlink/nft/entries.ts';
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
 * The changes that count added host ports in and removed ones out; a count of zero is deleted. Call within `commitAfterReading`,
 * since other processes count as well.
 */
export function countTaken(socket: NetlinkSocket, come: readonly Taken[], went: readonly Taken[]): Request[] {
  const sums = new Map<string, Sum>();
  const add = (key: 'come' | 'went') => (taken: Taken) => {
    for (const place of countedPlaces(taken)) {
      const name = `${place.set.name} ${renderFields(place.key)}`;
      const sum = sums.get(name) ?? { place, come: 0, went: 0 };
      sums.set(name, { ...sum, [key]: sum[key] + 1 });
    }
  };
  come.forEach(add('come'));
  went.forEach(add('went'));
  return [...sums.values()].flatMap(sum => recount(socket, sum));
}

/** What is added to one count and removed from it. */
interface Sum {
  readonly place: Place;
  readonly come: number;
  readonly went: number;
}

/** Where a host port is counted. */
export function countedPlaces({ family, ip, protocol, port, backend, condition }: Taken): Place[] {
  const { hostips, tally } = SETS[family];
  return [
    ...(ip ? [{ set: hostips, key: [ip] }] : []),
    ...(backend === 'nftables' && condition ? [{ set: tally, key: [PROTOCOLS[protocol], port] }] : []),
  ];
}

function recount(socket: NetlinkSocket, { place, come, went }: Sum): Request[] {
  const { set, key } = place;
  const counted = findElement(socket, set, key);
  const [before = 0] = (counted?.data ?? []) as readonly number[];
  // The count may have been wiped; at least the ports added now exist.
  const after = Math.max(before + come - went, come);
  const conditional = conditionalChanges(socket, place, after > 0);
  if (after === before) return conditional;
  return [
    ...deleteElements(set, counted ? [key] : []),
    ...addElements(set, after > 0 ? [{ key, data: [after] }] : []),
    ...conditional,
  ];
}

/** A port has its conditions evaluated while its count of mappings with conditions is above zero. */
function conditionalChanges(socket: NetlinkSocket, { set, key }: Place, isWanted: boolean): Request[] {
  const family = ([4, 6] as const).find(one => SETS[one].tally === set);
  if (family === undefined) return [];
  const { conditional } = SETS[family];
  const isThere = findElement(socket, conditional, key) !== undefined;
  if (isThere === isWanted) return [];
  return isWanted
    ? addElements(conditional, [{ key, data: jump(askingChain(family)) }])
    : deleteElements(conditional, [key]);
}
