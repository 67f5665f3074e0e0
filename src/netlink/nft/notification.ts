// What does the kernel say when a transaction takes something out of a rule set?
import { attrs } from '../codec/attrs.ts';
import { str } from '../codec/fields.ts';
import { type Envelope, layout } from '../codec/message.ts';
import { nfgenmsg } from '../nfgenmsg.ts';
import { elementMessage } from './element.ts';
import { NftMsg, nftType } from './message.ts';

/** linux/netfilter/nfnetlink.h: NFNLGRP_NFTABLES. Changes made by iptables-nft arrive here, too; those of iptables-legacy do not. */
export const NFT_GROUPS: readonly number[] = [7];

/** Something that was deleted. */
export interface NftDeletion {
  readonly table: string;
  /** Of elements: what their comments say. Undefined for a table, chain, rule or set: whom it concerns is not known. */
  readonly comments?: readonly string[];
}

/** The first attribute of each of these messages is the name of the table. */
const tableOnly = layout(nfgenmsg, attrs('deletion', { table: [1, str] }));

const DELETIONS = [NftMsg.DELTABLE, NftMsg.DELCHAIN, NftMsg.DELRULE, NftMsg.DELSET].map(nftType);
const ELEMENT_DELETION = nftType(NftMsg.DELSETELEM);

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
  if (!isElement) return { table };
  const { elements = [] } = elementMessage.decode(body).attrs;
  return { table, comments: elements.flatMap(({ comment }) => comment ?? []) };
}
