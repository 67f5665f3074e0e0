// Which rules did iptables leave in the table "nat" of nf_tables, and how do they go?
import { ipFromBytes } from '../../net/ip.ts';
import { attrs } from '../codec/attrs.ts';
import { bytes, str, u32be } from '../codec/fields.ts';
import { listChains } from '../nft/chain.ts';
import { NF_ACCEPT, NF_DROP, NFT_GOTO, NFT_JUMP, NFT_RETURN } from '../nft/data.ts';
import type { Table } from '../nft/message.ts';
import { listRules, type Rule } from '../nft/rule.ts';
import type { NetlinkSocket } from '../socket.ts';
import type { AddressMatch, Family, NatRule } from './nat-rule.ts';

/** linux/netfilter/nf_tables_compat.h, enum nft_match_attributes and nft_target_attributes: the same numbers. */
const extension = attrs('xtables extension', { name: [1, str], revision: [2, u32be], info: [3, bytes] });

/** Where addresses are in the network header, and how long they are, in bytes. */
const HEADER = {
  4: { source: 12, destination: 16, length: 4 },
  6: { source: 8, destination: 24, length: 16 },
} as const;
const NFT_CMP_NEQ = 1;
const VERDICTS: Readonly<Record<number, string>> = {
  [NF_ACCEPT]: 'ACCEPT',
  [NF_DROP]: 'DROP',
  [NFT_RETURN]: 'RETURN',
};

/** A rule with the number by which nf_tables removes it. */
export interface NftNatRule extends NatRule {
  readonly handle: bigint;
}

/** The table in which iptables keeps its address translation. */
export function natTable(family: Family): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'nat' };
}

/** Names of the table's chains. Same as: `nft list chains ip` */
export function listNftNatChains(socket: NetlinkSocket, family: Family): string[] {
  return listChains(socket, natTable(family)).map(({ name }) => name);
}

/**
 * Rules of the table "nat" in order, as iptables wrote them.
 * @param chain only of this one
 * Same as: `iptables-nft-save -t nat`
 */
export function listNftNat(socket: NetlinkSocket, family: Family, chain?: string): NftNatRule[] {
  return listRules(socket, natTable(family), chain).map(rule => decodeNatRule(family, rule));
}

/** The parts of a rule that iptables wrote, by the expressions it uses for them. */
export function decodeNatRule(family: Family, rule: Rule): NftNatRule {
  const header = HEADER[family];
  const read: Partial<Record<'source' | 'destination', AddressMatch>> = {};
  let which: 'source' | 'destination' | undefined;
  let mask: Uint8Array | undefined;
  let target = '';
  let mark: number | undefined;
  let { comment } = rule;
  for (const { name, data } of rule.expressions) {
    const own = data as Readonly<Record<string, unknown>> | undefined;
    if (name === 'payload') {
      which =
        own?.offset === header.source
          ? 'source'
          : own?.offset === header.destination
            ? 'destination'
            : undefined;
      mask = undefined;
    } else if (name === 'bitwise') mask = (own?.mask as { value?: Uint8Array } | undefined)?.value;
    else if (name === 'cmp' && which) {
      const value = (own?.data as { value?: Uint8Array } | undefined)?.value ?? new Uint8Array();
      read[which] = matchOf(value, mask, header.length, own?.op === NFT_CMP_NEQ);
    } else if (name === 'immediate') target = targetOf(own) ?? target;
    else if (name === 'masq') target = 'MASQUERADE';
    else if (name === 'target') {
      const extended = decodeExtension(data);
      target = extended?.name ?? target;
      mark = markOf(extended);
    } else if (name === 'match') comment ??= commentOf(data);
  }
  return { chain: rule.chain, handle: rule.handle, target, comment, mark, ...read };
}

/** Prefixes of whole bytes are compared as bytes, others behind a mask. */
function matchOf(
  value: Uint8Array,
  mask: Uint8Array | undefined,
  length: number,
  not: boolean,
): AddressMatch {
  const full = new Uint8Array(length);
  full.set(value);
  const ones = mask?.reduce((sum, byte) => sum + byte.toString(2).replaceAll('0', '').length, 0);
  return { cidr: { ip: ipFromBytes(full), prefix: ones ?? value.length * 8 }, not };
}

function targetOf(data: Readonly<Record<string, unknown>> | undefined): string | undefined {
  const verdict = (data?.data as { verdict?: { code?: number; chain?: string } } | undefined)?.verdict;
  if (verdict?.code === NFT_JUMP || verdict?.code === NFT_GOTO) return verdict.chain;
  return VERDICTS[verdict?.code ?? Number.NaN];
}

function commentOf(data: unknown): string | undefined {
  const match = decodeExtension(data);
  if (match?.name !== 'comment' || match.info === undefined) return undefined;
  const end = match.info.indexOf(0);
  return new TextDecoder().decode(end < 0 ? match.info : match.info.subarray(0, end));
}

/** linux/netfilter/xt_mark.h, struct xt_mark_tginfo2: u32 mark, u32 mask. */
function markOf(extended: ReturnType<typeof decodeExtension>): number | undefined {
  if (extended?.name !== 'MARK' || extended.info === undefined || extended.info.length < 8) return undefined;
  return new DataView(extended.info.buffer, extended.info.byteOffset).getUint32(0, true);
}

/** Kinds of expressions that we never write come as bytes. */
function decodeExtension(data: unknown): { name?: string; info?: Uint8Array } | undefined {
  return data instanceof Uint8Array ? extension.decode(data, {}) : undefined;
}
