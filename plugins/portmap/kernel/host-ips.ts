// On which addresses of the host are ports taken one by one, and on how many?
import { type Ip, renderIp } from '../../../src/net/ip.ts';
import { addElements, deleteElements, findElement, listElements } from '../../../src/netlink/nft/element.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { SETS } from '../skeleton.ts';

/** A host port, as far as it matters here: absent means all addresses. */
interface Bound {
  readonly ip?: Ip;
}

/** The addresses of a family on which ports are taken one by one: few, whatever the number of ports. */
export function listHostIps(socket: NetlinkSocket, family: 4 | 6): Ip[] {
  return listElements(socket, SETS[family].hostips).map(({ key: [ip] }) => ip as Ip);
}

/**
 * The changes that count host ports in that come, and those out that went; an address without ports is forgotten. To be
 * called within `commitAfterReading`, since others count as well.
 */
export function countHostIps(
  socket: NetlinkSocket,
  come: readonly Bound[],
  went: readonly Bound[],
): Request[] {
  return [...differences(come, went)].flatMap(({ ip, by }) => {
    const set = SETS[ip.family].hostips;
    const counted = findElement(socket, set, [ip]);
    const [before = 0] = (counted?.data ?? []) as readonly number[];
    const after = Math.max(before + by, 0);
    return [
      ...deleteElements(set, counted ? [[ip]] : []),
      ...addElements(set, after > 0 ? [{ key: [ip], data: [after] }] : []),
    ];
  });
}

function* differences(come: readonly Bound[], went: readonly Bound[]): Generator<{ ip: Ip; by: number }> {
  const byText = new Map<string, { ip: Ip; by: number }>();
  const add = (step: number) => (bound: Bound) => {
    if (bound.ip === undefined) return;
    const text = renderIp(bound.ip);
    byText.set(text, { ip: bound.ip, by: (byText.get(text)?.by ?? 0) + step });
  };
  come.forEach(add(1));
  went.forEach(add(-1));
  for (const difference of byText.values()) if (difference.by !== 0) yield difference;
}
