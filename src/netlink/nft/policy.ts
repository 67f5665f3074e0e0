// Which chains of other programs drop packets that none of their rules accepted, and which translate addresses?
import { NFPROTO } from '../nfgenmsg.ts';
import type { NetlinkSocket } from '../socket.ts';
import { type BaseChain, type Chain, chainMessage, decodeChain } from './chain.ts';
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
export function listDroppingChains(socket: NetlinkSocket, hook: BaseChain['hook']): ChainPlace[] {
  return listChainsOf(socket, ({ base, drops }) => base?.hook === hook && drops === true);
}

/** Chains of any table of IP that translate addresses at a hook, at a priority. Same as: `nft list chains`, filtered */
export function listTranslatingChains(
  socket: NetlinkSocket,
  place: Pick<BaseChain, 'hook' | 'priority'>,
): ChainPlace[] {
  return listChainsOf(socket, ({ base }) => Bun.deepEquals(base, { type: 'nat', ...place }));
}

function listChainsOf(socket: NetlinkSocket, isWanted: (chain: Chain) => boolean): ChainPlace[] {
  const request = nftRequest('list chains', NftMsg.GETCHAIN, chainMessage, 'inet', {});
  // The kernel lists only the requested family, or all if none is given.
  const families = (['inet', 'ip', 'ip6'] as const).map(family => ({
    ...request,
    body: chainMessage.encode({ family: NFPROTO[family] }, {}),
  }));
  return families.flatMap(one =>
    socket.dump(one).flatMap(body => {
      const chain = decodeChain(body);
      if (!isWanted(chain)) return [];
      const { header, attrs: own } = chainMessage.decode(body);
      return [{ table: { family: familyName(header.family), name: own.table ?? '' }, chain: chain.name }];
    }),
  );
}

function familyName(number: number): NftFamily {
  const families = Object.keys(NFPROTO) as NftFamily[];
  return families.find(name => NFPROTO[name] === number) ?? 'inet';
}
