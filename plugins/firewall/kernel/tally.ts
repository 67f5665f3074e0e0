// Which host interfaces lead to pods that are not open, and how many addresses do those pods have?
import { recount } from '../../../src/netlink/nft/tally.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { CLOSED, TALLY } from '../skeleton.ts';

/** The relevant part of a pod's address; without a bridge, the pod is open. */
interface Behind {
  readonly bridge?: string;
}

/**
 * The changes that count added addresses in and removed ones out; removing the last one opens the interface. Call within
 * `commitAfterReading`.
 */
export function countClosed(
  socket: NetlinkSocket,
  come: readonly Behind[],
  went: readonly Behind[],
): Request[] {
  const bridges = new Set([...come, ...went].flatMap(({ bridge }) => bridge ?? []));
  return [...bridges].flatMap(bridge => {
    const isHere = (one: Behind) => one.bridge === bridge;
    const tally = { come: come.filter(isHere).length, went: went.filter(isHere).length };
    return recount(socket, { set: TALLY, key: [bridge] }, tally, { set: CLOSED, element: { key: [bridge] } });
  });
}
