// Which host interfaces lead to pods that are not open, and how many addresses do those pods have?
import { addElements, deleteElements, findElement } from '../../../src/netlink/nft/element.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { CLOSED, TALLY } from '../skeleton.ts';

/** The relevant part of a pod's address; without a bridge, the pod is open. */
interface Behind {
  readonly bridge?: string;
}

/**
 * The changes that count added addresses in and removed ones out; removing the last one opens the interface. Call within
 * `commitAfterReading`, since other processes count as well.
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
    // The count may have been wiped; at least the addresses added now exist.
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
