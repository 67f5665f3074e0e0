// How are sets and maps created, listed and deleted?

import { attrs, bytes, str, u32be, u64be } from '../codec/attrs.ts';
import type { Request } from '../codec/message.ts';
import { NFPROTO } from '../nfgenmsg.ts';
import type { NetlinkSocket } from '../socket.ts';
import { type TypeNames, typeId, typeLength, typeOrder } from './datatype.ts';
import { NftMsg, nftLayout, nftRequest, renderTable, SET_ID, type Table } from './message.ts';
import { setUserdata } from './userdata.ts';

/** linux/netfilter/nf_tables.h, enum nft_set_flags */
const NFT_SET_MAP = 0x8;
/** linux/netfilter/nf_tables.h: the data type of verdicts. */
const NFT_DATA_VERDICT = 0xffffff00;

/** linux/netfilter/nf_tables.h, enum nft_set_desc_attributes */
const descAttrs = attrs('set description', { size: [1, u32be] });

/** linux/netfilter/nf_tables.h, enum nft_set_attributes */
const setAttrs = attrs('set', {
  table: [1, str],
  name: [2, str],
  flags: [3, u32be],
  keyType: [4, u32be],
  keyLength: [5, u32be],
  dataType: [6, u32be],
  dataLength: [7, u32be],
  policy: [8, u32be],
  desc: [9, descAttrs],
  id: [10, u32be],
  userdata: [13, bytes],
  handle: [16, u64be],
});

/** NFT_MSG_NEWSET, NFT_MSG_GETSET and NFT_MSG_DELSET. */
export const setMessage = nftLayout('SET', setAttrs);

/** A set, or with `data` a map. The cost of a lookup does not depend on the number of elements. */
export interface NftSet {
  readonly table: Table;
  readonly name: string;
  readonly key: TypeNames;
  /** The data of the elements: values of these types, or a verdict. */
  readonly data?: TypeNames | 'verdict';
}

/**
 * Creates a set or map unless it exists; EEXIST if a different one has the name.
 * Same as: `nft add set|map <family> <table> <name> { type <key> [: <data>]; }`
 */
export function addSet(set: NftSet): Request {
  const { table, name, key, data } = set;
  const op = `add ${kindOf(set)} "${name}" to table ${renderTable(table)}`;
  return nftRequest(op, NftMsg.NEWSET, setMessage, table.family, {
    table: table.name,
    name,
    flags: data === undefined ? 0 : NFT_SET_MAP,
    keyType: typeId(key),
    keyLength: typeLength(key),
    ...(data === undefined ? {} : dataAttrs(data)),
    id: SET_ID,
    userdata: setUserdata(
      typeOrder(key),
      data === undefined || data === 'verdict' ? undefined : typeOrder(data),
    ),
  });
}

/** Deletes a set; EBUSY if a rule refers to it. Same as: `nft delete set <family> <table> <name>` */
export function deleteSet(set: NftSet): Request {
  const op = `delete ${kindOf(set)} "${set.name}" of table ${renderTable(set.table)}`;
  const values = { table: set.table.name, name: set.name };
  return nftRequest(op, NftMsg.DELSET, setMessage, set.table.family, values);
}

/** Names of the sets and maps of the table. Same as: `nft list sets <family>` and `nft list maps <family>` */
export function listSets(socket: NetlinkSocket, table: Table): string[] {
  const op = `list sets of table ${renderTable(table)}`;
  const bodies = socket.dump(nftRequest(op, NftMsg.GETSET, setMessage, table.family, {}));
  return bodies.flatMap(body => {
    const { header, attrs: own } = setMessage.decode(body);
    return header.family === NFPROTO[table.family] && own.table === table.name ? (own.name ?? '') : [];
  });
}

/** Asks for one set or map, at a cost that does not depend on the others: any answer means that it exists. */
export function setQuestion(set: NftSet): Request {
  const { table, name } = set;
  const op = `find ${kindOf(set)} "${name}" of table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETSET, setMessage, table.family, { table: table.name, name });
  return { ...request, isQuestion: true };
}

/** `set` or `map`, for messages. */
export function kindOf(set: NftSet): 'set' | 'map' {
  return set.data === undefined ? 'set' : 'map';
}

function dataAttrs(data: TypeNames | 'verdict'): { dataType: number; dataLength: number } {
  if (data === 'verdict') return { dataType: NFT_DATA_VERDICT, dataLength: 0 };
  return { dataType: typeId(data), dataLength: typeLength(data) };
}
