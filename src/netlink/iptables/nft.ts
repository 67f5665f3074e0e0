// Which rules did iptables leave in table "nat" of nf_tables, and how are they read for removal?
import { type Family, ipFromBytes } from '../../net/ip.ts';
import { attrs, bytes, str, u32be } from '../codec/attrs.ts';
import { NF_ACCEPT, NF_DROP, NFT_GOTO, NFT_JUMP, NFT_RETURN } from '../nft/data.ts';
import { META } from '../nft/expr.ts';
import type { Table } from '../nft/message.ts';
import { listRules, type Rule } from '../nft/rule.ts';
import type { NetlinkSocket } from '../socket.ts';
import { type Extension, readMatch, readTarget } from './extension.ts';
import { type AddressMatch, type NatRule, prefixOf } from './nat-rule.ts';

/** linux/netfilter/nf_tables_compat.h, enum nft_match_attributes and nft_target_attributes: the same numbers. */
const extension = attrs('xtables extension', { name: [1, str], revision: [2, u32be], info: [3, bytes] });

/** Offsets and length of addresses in the network header, in bytes. */
const HEADER = {
  4: { source: 12, destination: 16, length: 4 },
  6: { source: 8, destination: 24, length: 16 },
} as const;
/** linux/netfilter/nf_tables.h, enum nft_cmp_ops */
const NFT_CMP_EQ = 0;
const NFT_CMP_NEQ = 1;
/** linux/netfilter/nf_tables.h, NFT_PAYLOAD_TRANSPORT_HEADER; the ports are at the same offset in TCP, UDP and SCTP. */
const TRANSPORT_HEADER = 2;
const DESTINATION_PORT_AT = 2;
const VERDICTS: Readonly<Record<number, string>> = {
  [NF_ACCEPT]: 'ACCEPT',
  [NF_DROP]: 'DROP',
  [NFT_RETURN]: 'RETURN',
};

/** A rule with the handle by which nf_tables deletes it. */
export interface NftNatRule extends NatRule {
  readonly handle: bigint;
}

/** The table that iptables uses for address translation. */
export function natTable(family: Family): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'nat' };
}

/**
 * Rules of table "nat" in order, as iptables wrote them.
 * @param chain list only this chain
 * Same as: `iptables-nft-save -t nat`
 */
export function listNftNat(socket: NetlinkSocket, family: Family, chain?: string): NftNatRule[] {
  return listRules(socket, natTable(family), chain).map(rule => decodeNatRule(family, rule));
}

/** Decodes a rule from the expressions that iptables uses. */
export function decodeNatRule(family: Family, rule: Rule): NftNatRule {
  let read: Partial<NatRule> = { target: '', comment: rule.comment };
  let loaded: Loaded | undefined;
  let mask: Uint8Array | undefined;
  let more = false;
  for (const { name, data } of rule.expressions) {
    const own = data as Readonly<Record<string, unknown>> | undefined;
    if (name === 'payload' || name === 'meta') {
      loaded = name === 'payload' ? loadedFrom(family, own) : loadedMeta(own);
      mask = undefined;
    } else if (name === 'bitwise') mask = (own?.mask as { value?: Uint8Array } | undefined)?.value;
    else if (name === 'cmp') {
      const compared = loaded && compare(family, loaded, mask, own);
      read = { ...read, ...compared };
      more ||= compared === undefined;
    } else if (name === 'immediate') read = { ...read, ...decided(family, own) };
    else if (name === 'masq') read = { ...read, target: 'MASQUERADE' };
    else if (name === 'nat') read = { ...read, target: 'DNAT' };
    else if (name === 'target') read = { ...read, ...targetFacts(family, data) };
    else if (name === 'match') {
      const extension = decodeExtension(data);
      const facts = extension && readMatch(extension);
      more ||= facts === undefined;
      read = { ...read, ...facts, comment: read.comment ?? facts?.comment };
    } else more ||= name !== 'counter';
  }
  return { target: '', ...read, chain: rule.chain, handle: rule.handle, ...(more ? { more } : {}) };
}

/** What a rule loaded into the register that it compares next. */
type Loaded = 'source' | 'destination' | 'protocol' | 'port';

function loadedFrom(family: Family, own: Readonly<Record<string, unknown>> | undefined): Loaded | undefined {
  const header = HEADER[family];
  if (own?.base === TRANSPORT_HEADER) {
    return own.offset === DESTINATION_PORT_AT && own.length === 2 ? 'port' : undefined;
  }
  if (own?.offset === header.source) return 'source';
  return own?.offset === header.destination ? 'destination' : undefined;
}

function loadedMeta(own: Readonly<Record<string, unknown>> | undefined): Loaded | undefined {
  return own?.key === META.l4proto ? 'protocol' : undefined;
}

function compare(
  family: Family,
  loaded: Loaded,
  mask: Uint8Array | undefined,
  own: Readonly<Record<string, unknown>> | undefined,
): Partial<NatRule> | undefined {
  const value = (own?.data as { value?: Uint8Array } | undefined)?.value ?? new Uint8Array();
  const not = own?.op === NFT_CMP_NEQ;
  if (loaded === 'source' || loaded === 'destination') {
    const match = matchOf(value, mask, HEADER[family].length, not);
    return match && { [loaded]: match };
  }
  if (not || mask || own?.op !== NFT_CMP_EQ) return undefined;
  if (loaded === 'protocol') return { protocol: value[0] };
  return { ports: [((value[0] ?? 0) << 8) | (value[1] ?? 0)] };
}

/** A verdict, or the address for a translation that follows. */
function decided(family: Family, own: Readonly<Record<string, unknown>> | undefined): Partial<NatRule> {
  const target = targetOf(own);
  if (target !== undefined) return { target };
  const value = (own?.data as { value?: Uint8Array } | undefined)?.value;
  return value?.length === HEADER[family].length ? { to: ipFromBytes(value) } : {};
}

function targetFacts(family: Family, data: unknown): Partial<NatRule> {
  const extension = decodeExtension(data);
  return extension ? readTarget(family, extension) : {};
}

/** Prefixes of whole bytes are compared directly, others through a mask; undefined for a mask that is no prefix. */
function matchOf(
  value: Uint8Array,
  mask: Uint8Array | undefined,
  length: number,
  not: boolean,
): AddressMatch | undefined {
  const full = new Uint8Array(length);
  full.set(value);
  const prefix = mask ? prefixOf(mask) : value.length * 8;
  return prefix === undefined ? undefined : { cidr: { ip: ipFromBytes(full), prefix }, not };
}

function targetOf(data: Readonly<Record<string, unknown>> | undefined): string | undefined {
  const verdict = (data?.data as { verdict?: { code?: number; chain?: string } } | undefined)?.verdict;
  if (verdict?.code === NFT_JUMP || verdict?.code === NFT_GOTO) return verdict.chain;
  return VERDICTS[verdict?.code ?? Number.NaN];
}

/** Targets are given as bytes: our plugins never write one. */
function decodeExtension(data: unknown): Extension | undefined {
  if (typeof data !== 'object' || data === null) return undefined;
  const own: Partial<Extension> = data instanceof Uint8Array ? extension.decode(data, {}) : data;
  const { name = '', revision = 0, info = new Uint8Array() } = own;
  return { name, revision, info };
}
