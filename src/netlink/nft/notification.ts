// What does the kernel say when a transaction takes something out of a rule set, or adds a table or chain?
import { attrs, str } from '../codec/attrs.ts';
import { type Envelope, layout } from '../codec/message.ts';
import { nfgenmsg } from '../nfgenmsg.ts';
import { elementMessage } from './element.ts';
import { NftMsg, nftType } from './message.ts';

/** linux/netfilter/nfnetlink.h: NFNLGRP_NFTABLES. Changes made by iptables-nft arrive here, too; those of iptables-legacy do not. */
export const NFT_GROUPS: readonly number[] = [7];

/** Something that was deleted. */
export interface NftDeletion {
  readonly table: string;
  /** Of a chain or a rule: the chain. */
  readonly chain?: string;
  /** Of elements: their set. */
  readonly set?: string;
  /** Of elements: what their comments say. Undefined for a table, chain, rule or set: whom it concerns is not known. */
  readonly comments?: readonly string[];
}

/** The first attribute of each of these messages is the name of the table. */
const tableOnly = layout(nfgenmsg, attrs('deletion', { table: [1, str] }));

/** linux/netfilter/nf_tables.h: NFTA_RULE_CHAIN, NFTA_SET_ELEM_LIST_SET. */
const tableAndSecond = layout(nfgenmsg, attrs('place', { table: [1, str], second: [2, str] }));
/** NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME. */
const chainName = layout(nfgenmsg, attrs('chain', { table: [1, str], chain: [3, str] }));

const DELETIONS = [NftMsg.DELTABLE, NftMsg.DELCHAIN, NftMsg.DELRULE, NftMsg.DELSET].map(nftType);
const ELEMENT_DELETION = nftType(NftMsg.DELSETELEM);
const ELEMENT_ADDITION = nftType(NftMsg.NEWSETELEM);

/**
 * @param isWanted tables whose deletions are of interest: other software changes many elements of its own
 * @returns undefined for everything but their deletions
 */
export function decodeNftDeletion(
  { type, body }: Envelope,
  isWanted: (table: string) => boolean,
): NftDeletion | undefined {
  const isElement = type === ELEMENT_DELETION;
  if (!isElement && !DELETIONS.includes(type)) return undefined;
  const { table } = tableOnly.decode(body).attrs;
  if (table === undefined || !isWanted(table)) return undefined;
  const chain = chainIn(type, body);
  if (!isElement) return { table, ...(chain === undefined ? {} : { chain }) };
  const { set = '', elements = [] } = elementMessage.decode(body).attrs;
  return { table, set, comments: elements.flatMap(({ comment }) => comment ?? []) };
}

function chainIn(type: number, body: Uint8Array): string | undefined {
  if (type === nftType(NftMsg.DELRULE)) return tableAndSecond.decode(body).attrs.second;
  return type === nftType(NftMsg.DELCHAIN) ? chainName.decode(body).attrs.chain : undefined;
}

/** The set that elements were added to. */
export function decodeNftSetAddition({ type, body }: Envelope): { table: string; set: string } | undefined {
  if (type !== ELEMENT_ADDITION) return undefined;
  const { table, second: set } = tableAndSecond.decode(body).attrs;
  return table === undefined || set === undefined ? undefined : { table, set };
}

/** A table or a chain that was added. */
export interface NftAddition {
  readonly table: string;
  /** Undefined for a table. */
  readonly chain?: string;
}

/** @returns undefined for everything but a table or chain that is new, or whose policy or flags have changed */
export function decodeNftAddition({ type, body }: Envelope): NftAddition | undefined {
  const isChain = type === nftType(NftMsg.NEWCHAIN);
  if (!isChain && type !== nftType(NftMsg.NEWTABLE)) return undefined;
  const { table, chain } = isChain
    ? chainName.decode(body).attrs
    : { ...tableOnly.decode(body).attrs, chain: undefined };
  if (table === undefined) return undefined;
  return { table, ...(chain === undefined ? {} : { chain }) };
}
