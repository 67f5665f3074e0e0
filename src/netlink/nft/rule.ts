// How are rules appended, listed and deleted?
import { attrs, listOf, str, u64be } from '../codec/attrs.ts';
import { layout, NLM_F_APPEND, NLM_F_CREATE, type Request } from '../codec/message.ts';
import { NFPROTO, nfgenmsg } from '../nfgenmsg.ts';
import type { NetlinkSocket } from '../socket.ts';
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

/** The location of a rule and its comment; the expressions are not decoded. */
const rulePlace = layout(
  nfgenmsg,
  attrs('rule place', { table: [1, str], chain: [2, str], comment: [7, comment] }),
);

/** A rule as the kernel reports it. */
export interface Rule {
  readonly chain: string;
  readonly handle: bigint;
  readonly expressions: readonly { readonly name?: string; readonly data?: unknown }[];
  readonly comment?: string;
}

/**
 * Appends a rule to a chain, even if the same rule already exists there.
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

/**
 * Like {@link addRule}, but inserts the rule before all others of the chain.
 * Same as: `nft insert rule <family> <table> <chain> …`
 */
export function insertRule(table: Table, chain: string, expressions: readonly Expression[]): Request {
  const op = `insert rule into chain "${chain}" of table ${renderTable(table)}`;
  const values = { table: table.name, chain, expressions };
  return nftRequest(op, NftMsg.NEWRULE, ruleMessage, table.family, values, NLM_F_CREATE);
}

/** Deletes all rules of a chain. Costs a grace period (about 10 ms). Same as: `nft flush chain <family> <table> <chain>` */
export function flushChain(table: Table, chain: string): Request {
  const op = `flush chain "${chain}" of table ${renderTable(table)}`;
  return nftRequest(op, NftMsg.DELRULE, ruleMessage, table.family, { table: table.name, chain });
}

/** Deletes one rule. Costs a grace period. Same as: `nft delete rule <family> <table> <chain> handle <handle>` */
export function deleteRule(table: Table, chain: string, handle: bigint): Request {
  const op = `delete rule ${handle} of chain "${chain}" of table ${renderTable(table)}`;
  return nftRequest(op, NftMsg.DELRULE, ruleMessage, table.family, { table: table.name, chain, handle });
}

/**
 * Rules of the table in order; none when the table does not exist.
 * @param chain list only this chain
 * @param only skip rules that contain none of these byte strings
 * Same as: `nft -a list table <family> <name>`, `nft -a list chain <family> <table> <name>`
 */
export function listRules(
  socket: NetlinkSocket,
  table: Table,
  chain?: string,
  only?: readonly Uint8Array[],
): Rule[] {
  const op = `list rules of table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETRULE, ruleMessage, table.family, {
    table: table.name,
    ...(chain === undefined ? {} : { chain }),
  });
  return socket.dump(request, only).flatMap(body => {
    const { header, attrs: own } = ruleMessage.decode(body);
    // Kernels before 4.16 list the rules of every table, whatever was requested.
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

/** What is known about a chain without decoding its rules. */
export interface ChainSummary {
  readonly count: number;
  /** Comment of the first rule. */
  readonly comment?: string | undefined;
}

/** Rules per chain of the table: cheaper than {@link listRules}, and enough to detect a flush. */
export function summarizeChains(socket: NetlinkSocket, table: Table): Map<string, ChainSummary> {
  const op = `count rules of table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETRULE, ruleMessage, table.family, { table: table.name });
  const chains = new Map<string, ChainSummary>();
  for (const body of socket.dump(request)) {
    const { header, attrs: own } = rulePlace.decode(body);
    if (header.family !== NFPROTO[table.family] || own.table !== table.name) continue;
    const known = chains.get(own.chain ?? '');
    const comment = known ? known.comment : own.comment;
    chains.set(own.chain ?? '', { count: (known?.count ?? 0) + 1, comment });
  }
  return chains;
}
