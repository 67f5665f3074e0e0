// Behind which interfaces of the host are pods that are not open, and how many addresses of them?
import { addElements, deleteElements, findElement } from '../../../src/netlink/nft/element.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { CLOSED, TALLY } from '../skeleton.ts';

/** An address of a pod, as far as it matters here; absent means that it is open. */
interface Behind {
  readonly bridge?: string;
}

/**
 * The changes that count addresses in that come, and those out that went; the last one opens the interface. To be called
 * within `commitAfterReading`, since others count as well.
 */
export function countClosed(
  socket: NetlinkSocket,
  come: readonly Behind[],
  went: readonly Behind[],
): Request[] {
  const bridges = new Set([...come, ...went].flatMap(({ bridge }) => bridge ?? []));
  return [...bridges].flatMap(bridge => {
    const isHere = (one: Behind) => one.bridge === bridge;
    const [added, removed] = [come.filter(isHere).length, went.filter(isHere).length];
    const counted = findElement(socket, TALLY, [bridge]);
    const [before = 0] = (counted?.data ?? []) as readonly number[];
    // Somebody may have wiped the count: what comes now is there in any case.
    const after = Math.max(before + added - removed, added);
    const closed = findElement(socket, CLOSED, [bridge]) !== undefined;
    return [
      ...(after === before ? [] : deleteElements(TALLY, counted ? [[bridge]] : [])),
      ...addElements(TALLY, after > 0 && after !== before ? [{ key: [bridge], data: [after] }] : []),
      ...addElements(CLOSED, after > 0 && !closed ? [{ key: [bridge] }] : []),
      ...deleteElements(CLOSED, after === 0 && closed ? [[bridge]] : []),
    ];
  });
}
