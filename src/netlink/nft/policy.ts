// Which chains of other programs drop packets that none of their rules accepted?
import { NFPROTO } from '../nfgenmsg.ts';
import type { NetlinkSocket } from '../socket.ts';
import { chainMessage, HOOK } from './chain.ts';
import { NF_DROP } from './data.ts';
import { type NftFamily, NftMsg, nftRequest, type Table } from './message.ts';

/** A chain and the table it is in. */
export interface ChainPlace {
  readonly table: Table;
  readonly chain: string;
}

/**
 * Chains of any table that drop packets which none of their rules accepted at a hook. A packet must pass every such chain: a
 * rule elsewhere that accepts it does not help. Inspects all chains.
 * Same as: `nft list chains`, filtered for `policy drop`
 */
export function listDroppingChains(socket: NetlinkSocket, hook: keyof typeof HOOK): ChainPlace[] {
  const request = nftRequest('list chains', NftMsg.GETCHAIN, chainMessage, 'inet', {});
  // The kernel lists only the requested family, or all if none is given.
  const families = (['inet', 'ip', 'ip6'] as const).map(family => ({
    ...request,
    body: chainMessage.encode({ family: NFPROTO[family] }, {}),
  }));
  return families.flatMap(one =>
    socket.dump(one).flatMap(body => {
      const { header, attrs: own } = chainMessage.decode(body);
      if (own.hook?.number !== HOOK[hook] || own.policy !== NF_DROP) return [];
      const table = { family: familyName(header.family), name: own.table ?? '' };
      return [{ table, chain: own.name ?? '' }];
    }),
  );
}

function familyName(number: number): NftFamily {
  const families = Object.keys(NFPROTO) as NftFamily[];
  return families.find(name => NFPROTO[name] === number) ?? 'inet';
}
