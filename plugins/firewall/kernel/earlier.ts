// Which elements did an earlier release make with a device by which the host does not route to the pod?
import { FAMILIES } from '../../../src/net/ip.ts';
import type { Entry, Place } from '../../../src/netlink/nft/entries.ts';
import { listOwned } from '../../../src/netlink/nft/owned-table.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { type Claim, decodeClaim } from '../elements.ts';
import { SETS } from '../skeleton.ts';
import { findHome } from './port.ts';

/** Elements to be replaced, and the claims before and after, which are counted. */
export interface Moves {
  readonly gone: readonly Place[];
  readonly added: readonly Entry[];
  readonly went: readonly Claim[];
  readonly come: readonly Claim[];
}

/**
 * Moves closed pods to the devices by which the host routes to them. Reads every claim.
 * @param isConcerned by the note of the owner
 */
export function moveHomes(
  host: NetlinkSocket,
  nft: NetlinkSocket,
  isConcerned: (note: string) => boolean,
): Moves {
  const moves = FAMILIES.flatMap(family => {
    const { claims, home: homes } = SETS[family];
    return listOwned(nft, [claims], isConcerned).flatMap(({ element }) => {
      const claim = decodeClaim(element);
      const home = claim.home === undefined ? undefined : findHome(host, claim.pod);
      if (claim.home === undefined || home === undefined || home === claim.home) return [];
      const { data: _, ...owned } = element;
      const entry = (at: string): Entry => ({ set: homes, element: { ...owned, key: [claim.pod, at] } });
      return {
        claim,
        home,
        before: [entry(claim.home), { set: claims, element }],
        after: [entry(home), { set: claims, element: { ...element, data: [claim.pod, home] } }],
      };
    });
  });
  return {
    gone: moves.flatMap(({ before }) => before.map(({ set, element: { key } }) => ({ set, key }))),
    added: moves.flatMap(({ after }) => after),
    went: moves.map(({ claim }) => claim),
    come: moves.map(({ claim, home }) => ({ ...claim, home })),
  };
}
