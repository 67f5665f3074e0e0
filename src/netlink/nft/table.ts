// How are nf_tables tables created, found and deleted?

import { Errno } from '../../sys/errno.ts';
import { attrs, str, u32be, u64be } from '../codec/attrs.ts';
import type { Request } from '../codec/message.ts';
import { familyOf, NFPROTO } from '../nfgenmsg.ts';
import type { NetlinkSocket } from '../socket.ts';
import { type BaseChain, type Chain, chainMessage, decodeChain } from './chain.ts';
import { type NftFamily, NftMsg, nftLayout, nftRequest, renderTable, type Table } from './message.ts';
import { comment } from './userdata.ts';

/** linux/netfilter/nf_tables.h, enum nft_table_attributes */
const tableAttrs = attrs('table', {
  name: [1, str],
  flags: [2, u32be],
  use: [3, u32be],
  handle: [4, u64be],
  comment: [6, comment], // NFTA_TABLE_USERDATA
});

/** NFT_MSG_NEWTABLE, NFT_MSG_GETTABLE and NFT_MSG_DELTABLE. */
export const tableMessage = nftLayout('TABLE', tableAttrs);

/** Creates a table unless it exists. Same as: `nft add table <family> <name> { comment "…"; }` */
export function addTable(table: Table, words?: string): Request {
  return nftRequest(`add table ${renderTable(table)}`, NftMsg.NEWTABLE, tableMessage, table.family, {
    name: table.name,
    flags: 0,
    ...(words === undefined ? {} : { comment: words }),
  });
}

/** Deletes a table and its contents; ENOENT for a missing one. Same as: `nft delete table <family> <name>` */
export function deleteTable(table: Table): Request {
  const op = `delete table ${renderTable(table)}`;
  return nftRequest(op, NftMsg.DELTABLE, tableMessage, table.family, { name: table.name });
}

/** True when the table exists. Same as: `nft list table <family> <name>` */
export function hasTable(socket: NetlinkSocket, table: Table): boolean {
  const op = `find table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETTABLE, tableMessage, table.family, { name: table.name });
  return socket.find({ ...request, isQuestion: true }, [Errno.ENOENT]) !== undefined;
}

/** Tests which tables exist, with a single question for any number of tables. Same as: `nft list tables` */
export function listTables(socket: NetlinkSocket): { has(table: Table): boolean } {
  const names = new Set(listTableNames(socket).map(renderTable));
  return { has: table => names.has(renderTable(table)) };
}

/** Every table of the known families; a table that was made later has a higher handle. Same as: `nft -a list tables` */
export function listTableNames(socket: NetlinkSocket): (Table & { readonly handle: bigint })[] {
  const request = nftRequest('list tables', NftMsg.GETTABLE, tableMessage, 'inet', {});
  // The kernel lists only the requested family, or all if none is given.
  const body = tableMessage.encode({ family: 0 }, {});
  return socket.dump({ ...request, body }).flatMap(one => {
    const { header, attrs: own } = tableMessage.decode(one);
    const family = familyOf(header.family);
    if (family === undefined || own.name === undefined) return [];
    return { family, name: own.name, handle: own.handle ?? 0n };
  });
}

/** A chain and the table it is in. */
interface ChainPlace {
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
