// Which host interfaces lead to pods that are not open, and how many addresses do those pods have?
import { recount } from '../../../src/netlink/nft/tally.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';
import { CLOSED, TALLY } from '../skeleton.ts';

/** The relevant part of a pod's address; without a home, the pod is open. */
interface Behind {
  readonly home?: string;
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
  const homes = new Set([...come, ...went].flatMap(({ home }) => home ?? []));
  return [...homes].flatMap(home => {
    const isHere = (one: Behind) => one.home === home;
    const tally = { come: come.filter(isHere).length, went: went.filter(isHere).length };
    return recount(socket, { set: TALLY, key: [home] }, tally, { set: CLOSED, element: { key: [home] } });
  });
}
