// What do tools show of the blocks that this node holds?
import type { AddressRange, SeenPool } from '../cni/plugin-about.ts';
import { networkOf, renderCidr } from '../net/cidr.ts';
import { findIp, renderIp } from '../net/ip.ts';
import { readHeld, usableOf } from './held.ts';

/**
 * The blocks of a lease directory as ranges. Single addresses are left out: they are claimed when they are needed, so none is free.
 * @throws CniError 5 or 6 when the list of blocks cannot be read
 */
export function heldRanges(dir: string): AddressRange[] {
  const blocks = readHeld(dir)?.blocks ?? [];
  return blocks
    .filter(({ state, size }) => state === 'held' && size > 1)
    .flatMap((block, i) =>
      usableOf(block).map(({ from, to, prefix, gateway }): AddressRange => {
        const subnet = { ip: networkOf({ ip: from, prefix }), prefix };
        const ends = gateway === undefined ? ` ${renderIp(from)}-${renderIp(to)}` : '';
        return {
          ...{ path: ['ipam'], subnet, start: from, end: to, set: 2 * i + (from.family === 4 ? 0 : 1) },
          gateway: gateway === undefined ? undefined : findIp(gateway),
          text: `${renderCidr(subnet)}${ends}`,
        };
      }),
    );
}

/**
 * Pools as this node saw them when it last looked at all of their blocks.
 * @throws CniError as {@link heldRanges}
 */
export function seenPools(dir: string): SeenPool[] {
  return Object.entries(readHeld(dir)?.pools ?? {}).map(([pool, seen]) => ({ pool, ...seen }));
}
