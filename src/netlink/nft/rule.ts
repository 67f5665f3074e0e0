// How are rules appended, listed and removed?
import { attrs, listOf } from '../codec/attrs.ts';
import { str, u64be } from '../codec/fields.ts';
import { layout, NLM_F_APPEND, NLM_F_CREATE } from '../codec/message.ts';
import { NFPROTO, nfgenmsg } from '../nfgenmsg.ts';
import type { NetlinkSocket, Request } from '../socket.ts';
import { type Expression, expression } from './expr.ts';
import { NftMsg, nftLayout, nftRequest, renderTable, type Table } from './message.ts';
import { comment } from './userdata.ts';

/** linux/netfilter/nf_tables.h, enum nft_rule_attributes */
const ruleAttrs = attrs('rule', {
  table: [1, str],
  chain: [2, str],
  handle: [3, u64be],
  expressions: [4, listOf(expression)],
  position: [6, u64be],
  comment: [7, comment], // NFTA_RULE_USERDATA
});

/** NFT_MSG_NEWRULE, NFT_MSG_GETRULE and NFT_MSG_DELRULE. */
export const ruleMessage = nftLayout('RULE', ruleAttrs);

/** Where a rule is; its expressions stay bytes. */
const rulePlace = layout(nfgenmsg, attrs('rule place', { table: [1, str], chain: [2, str] }));

/** A rule as the kernel has it. */
export interface Rule {
  readonly chain: string;
  readonly handle: bigint;
  readonly expressions: readonly { readonly name?: string; readonly data?: unknown }[];
  readonly comment?: string;
}

/**
 * Appends a rule to a chain; it is there twice if it was there before.
 * Same as: `nft add rule <family> <table> <chain> … [comment "…"]`
 */
export function addRule(
  table: Table,
  chain: string,
  expressions: readonly Expression[],
  words?: string,
): Request {
  const op = `add rule to chain "${chain}" of table ${renderTable(table)}`;
  const values = {
    table: table.name,
    chain,
    expressions,
    ...(words === undefined ? {} : { comment: words }),
  };
  return nftRequest(op, NftMsg.NEWRULE, ruleMessage, table.family, values, NLM_F_CREATE | NLM_F_APPEND);
}

/** Removes all rules of a chain. Costs a grace period (about 10 ms). Same as: `nft flush chain <family> <table> <chain>` */
export function flushChain(table: Table, chain: string): Request {
  const op = `flush chain "${chain}" of table ${renderTable(table)}`;
  return nftRequest(op, NftMsg.DELRULE, ruleMessage, table.family, { table: table.name, chain });
}

/** Removes one rule. Costs a grace period. Same as: `nft delete rule <family> <table> <chain> handle <handle>` */
export function deleteRule(table: Table, chain: string, handle: bigint): Request {
  const op = `delete rule ${handle} of chain "${chain}" of table ${renderTable(table)}`;
  return nftRequest(op, NftMsg.DELRULE, ruleMessage, table.family, { table: table.name, chain, handle });
}

/**
 * Rules of the table in order, none when there is no such table.
 * @param chain only of this one
 * Same as: `nft -a list table <family> <name>`, `nft -a list chain <family> <table> <name>`
 */
export function listRules(socket: NetlinkSocket, table: Table, chain?: string): Rule[] {
  const op = `list rules of table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETRULE, ruleMessage, table.family, {
    table: table.name,
    ...(chain === undefined ? {} : { chain }),
  });
  return socket.dump(request).flatMap(body => {
    const { header, attrs: own } = ruleMessage.decode(body);
    // Kernels before 4.16 list the rules of every table, whatever was asked for.
    if (header.family !== NFPROTO[table.family] || own.table !== table.name) return [];
    if (chain !== undefined && own.chain !== chain) return [];
    return {
      chain: own.chain ?? '',
      handle: own.handle ?? 0n,
      expressions: own.expressions ?? [],
      ...(own.comment === undefined ? {} : { comment: own.comment }),
    };
  });
}

/** Number of rules per chain of the table: cheaper than {@link listRules}, and enough to notice that somebody flushed. */
export function countRules(socket: NetlinkSocket, table: Table): Map<string, number> {
  const op = `count rules of table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETRULE, ruleMessage, table.family, { table: table.name });
  const counts = new Map<string, number>();
  for (const body of socket.dump(request)) {
    const { header, attrs: own } = rulePlace.decode(body);
    if (header.family !== NFPROTO[table.family] || own.table !== table.name) continue;
    counts.set(own.chain ?? '', (counts.get(own.chain ?? '') ?? 0) + 1);
  }
  return counts;
}
