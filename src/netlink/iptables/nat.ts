// Which rules did iptables leave in table "nat", of nf_tables or of the legacy packet filter, and what does one of them contain?

import { readFileSync } from 'node:fs';
import { type Cidr, type Family, type Ip, ipFromBytes, renderCidr, subnetOf } from '../../net/ip.ts';
import { readIpOption } from '../../sys/socket-option.ts';
import { str } from '../codec.ts';
import {
  HEADER,
  HEADERS,
  META,
  NF_ACCEPT,
  NF_DROP,
  NFT_CMP_EQ,
  NFT_CMP_NEQ,
  NFT_GOTO,
  NFT_JUMP,
  NFT_RETURN,
  type Verdict,
} from '../nft/expr.ts';
import type { Table } from '../nft/message.ts';
import { listRules, type Rule } from '../nft/table.ts';
import type { NetlinkSocket } from '../socket.ts';
import type { IptablesTable } from './program.ts';

/** An address that packets must have, or with `not`, must not have. */
interface AddressMatch {
  readonly cidr: Cidr;
  readonly not: boolean;
}

export interface NatRule {
  readonly chain: string;
  /** `ACCEPT`, `MASQUERADE`, …, or the chain that is jumped to; empty for an unknown target. */
  readonly target: string;
  readonly source?: AddressMatch | undefined;
  readonly destination?: AddressMatch | undefined;
  readonly comment?: string | undefined;
  /** The value that target MARK sets; the mask is the same value. */
  readonly mark?: number | undefined;
  /** IPPROTO_* */
  readonly protocol?: number | undefined;
  /** Destination ports, any of which matches. */
  readonly ports?: readonly number[] | undefined;
  /** Destination of target DNAT. */
  readonly to?: Ip | undefined;
  /** The rule has matches other than those listed here. */
  readonly more?: boolean | undefined;
}

/** A match or target as bytes, in the layout given by its name and revision. */
export interface Extension {
  readonly name: string;
  readonly revision: number;
  readonly info: Uint8Array;
}

/** In the transport header: at the same offset in TCP, UDP and SCTP. */
const DESTINATION_PORT_AT = 2;
export const VERDICTS = { ACCEPT: NF_ACCEPT, DROP: NF_DROP, RETURN: NFT_RETURN } as const;

/** A rule with the handle by which nf_tables deletes it. */
interface NftNatRule extends NatRule {
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
    const own = (data ?? {}) as Decoded;
    if (name === 'payload' || name === 'meta') {
      loaded =
        name === 'payload' ? loadedFrom(family, own) : own.key === META.l4proto ? 'protocol' : undefined;
      mask = undefined;
    } else if (name === 'bitwise') mask = own.mask?.value;
    else if (name === 'cmp') {
      const compared = loaded && compare(family, loaded, mask, own);
      read = { ...read, ...compared };
      more ||= compared === undefined;
    } else if (name === 'immediate') read = { ...read, ...decided(family, own) };
    else if (name === 'masq') read = { ...read, target: 'MASQUERADE' };
    else if (name === 'nat') read = { ...read, target: 'DNAT' };
    else if (name === 'target') read = { ...read, ...readTarget(family, extensionOf(own)) };
    else if (name === 'match') {
      const facts = readMatch(extensionOf(own));
      more ||= facts === undefined;
      read = { ...read, ...facts, comment: read.comment ?? facts?.comment };
    } else more ||= name !== 'counter';
  }
  return { target: '', ...read, chain: rule.chain, handle: rule.handle, ...(more ? { more } : {}) };
}

/** The attributes that expressions of several kinds may have: what is compared, loaded or decided. */
export interface Decoded extends Partial<Extension> {
  readonly base?: number;
  readonly offset?: number;
  readonly length?: number;
  readonly key?: number;
  readonly op?: number;
  readonly mask?: { readonly value?: Uint8Array };
  readonly data?: { readonly value?: Uint8Array; readonly verdict?: Partial<Verdict> };
}

/** What a rule loaded into the register that it compares next. */
type Loaded = 'source' | 'destination' | 'protocol' | 'port';

function loadedFrom(family: Family, { base, offset, length }: Decoded): Loaded | undefined {
  const { saddr, daddr } = HEADER[family];
  if (base === HEADERS.th) return offset === DESTINATION_PORT_AT && length === 2 ? 'port' : undefined;
  if (offset === saddr) return 'source';
  return offset === daddr ? 'destination' : undefined;
}

function compare(
  family: Family,
  loaded: Loaded,
  mask: Uint8Array | undefined,
  { op, data }: Decoded,
): Partial<NatRule> | undefined {
  const value = data?.value ?? new Uint8Array();
  const not = op === NFT_CMP_NEQ;
  if (loaded === 'source' || loaded === 'destination') {
    const match = matchOf(value, mask, HEADER[family].length, not);
    return match && { [loaded]: match };
  }
  if (not || mask || op !== NFT_CMP_EQ) return undefined;
  if (loaded === 'protocol') return { protocol: value[0] };
  return { ports: [((value[0] ?? 0) << 8) | (value[1] ?? 0)] };
}

/** A verdict, or the address for a translation that follows. */
function decided(family: Family, { data: { verdict, value } = {} }: Decoded): Partial<NatRule> {
  const target = verdict && targetOf(verdict);
  if (target !== undefined) return { target };
  return value?.length === HEADER[family].length ? { to: ipFromBytes(value) } : {};
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

export function targetOf({ code, chain }: Partial<Verdict>): string | undefined {
  if (code === NFT_JUMP || code === NFT_GOTO) return chain;
  return Object.entries(VERDICTS).find(([, one]) => one === code)?.[0];
}

function extensionOf({ name = '', revision = 0, info = new Uint8Array() }: Decoded): Extension {
  return { name, revision, info };
}

/** linux/netfilter_ipv4/ip_tables.h and ip6_tables.h: the same numbers for both families. */
const SO_GET_INFO = 64;
const SO_GET_ENTRIES = 65;

/** linux/netfilter/x_tables.h: name[32], then for GET_INFO valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const NAME_BYTES = 32;
const INFO_BYTES = NAME_BYTES + 4 * (1 + 5 + 5 + 1 + 1);
/** The entries of struct ipt_get_entries are aligned to eight bytes. */
const ENTRIES_AT = 40;
const HOOKS = ['PREROUTING', 'INPUT', 'FORWARD', 'OUTPUT', 'POSTROUTING'] as const;

/** linux/netfilter/x_tables.h, struct xt_entry_target: u16 size, char name[29], u8 revision, then data. */
const XT_HEADER_BYTES = 32;
/** linux/netfilter.h: a verdict is encoded as its negative value minus one. */
const XT_DROP = -1;

interface LegacyTable {
  readonly entries: Uint8Array;
  /** Built-in chains by the offset of their first entry. */
  readonly heads: ReadonlyMap<number, string>;
  /** Offset of the policy entry of each built-in chain. */
  readonly policies: ReadonlyMap<string, number>;
}

/**
 * Reads a table in the thread's namespace; undefined when the legacy packet filter does not have it. Any other query would
 * create it.
 */
function readLegacyTable(family: Family, table: IptablesTable): LegacyTable | undefined {
  if (!hasLegacyTable(family, table)) return undefined;
  const what = `read the table "${table}" of the legacy packet filter`;
  const info = named(table, INFO_BYTES);
  readIpOption(family, SO_GET_INFO, info, what);
  const words = new Uint32Array(info.buffer, NAME_BYTES);
  const size = words.at(12) ?? 0;
  const entries = named(table, ENTRIES_AT + size);
  new DataView(entries.buffer).setUint32(NAME_BYTES, size, true);
  readIpOption(family, SO_GET_ENTRIES, entries, what);
  const valid = words.at(0) ?? 0;
  const hooks = HOOKS.flatMap((name, i) => (valid & (1 << i) ? [{ name, i }] : []));
  return {
    entries: entries.subarray(ENTRIES_AT),
    heads: new Map(hooks.map(({ name, i }) => [words.at(1 + i) ?? 0, name])),
    policies: new Map(hooks.map(({ name, i }) => [name, words.at(1 + HOOKS.length + i) ?? 0])),
  };
}

/**
 * True when the policy for forwarded packets in the legacy packet filter is DROP.
 * Same as: `iptables-legacy -S FORWARD` beginning with `-P FORWARD DROP`
 */
export function isLegacyDropping(family: Family): boolean {
  const found = readLegacyTable(family, 'filter');
  const at = found?.policies.get('FORWARD');
  if (found === undefined || at === undefined) return false;
  const { entries } = found;
  const view = viewOf(entries);
  const target = at + view.getUint16(at + LAYOUT[family].offsets, true);
  return view.getInt32(target + XT_HEADER_BYTES, true) === XT_DROP;
}

/** True when the table is in use; a query through iptables would create it. */
export function hasLegacyTable(family: Family, table: IptablesTable): boolean {
  try {
    const names = readFileSync(`/proc/thread-self/net/ip${family === 4 ? '' : '6'}_tables_names`, 'utf8');
    return names.split('\n').includes(table);
  } catch {
    return false;
  }
}

function named(table: IptablesTable, size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  bytes.set(new TextEncoder().encode(table));
  return bytes;
}

/**
 * Offsets in struct ipt_entry and struct ip6t_entry, which begin with the source, the destination, and the masks of both; `masks` are those of both interfaces, `inverse` are the flags
 * IPT_INV_*, `offsets` has where the target and the next entry start: __u16 target_offset, next_offset.
 */
const LAYOUT = {
  4: { masks: 48, protocol: 80, inverse: 83, offsets: 88, entry: 112 },
  6: { masks: 96, protocol: 128, inverse: 132, offsets: 140, entry: 168 },
} as const;
const INV_SRCIP = 0x08;
const INV_DSTIP = 0x10;
/** linux/if.h, IFNAMSIZ */
const IFNAMSIZ = 16;

/** struct xt_entry_target: u8 revision after size and name. */
const XT_REVISION_AT = 31;
/** Every target is followed by at least a verdict, aligned. */
const VERDICT_BYTES = 4;
const ERROR_TARGET = 'ERROR';
/** linux/netfilter.h: a verdict is encoded as its negative value minus one; XT_RETURN uses that of NF_REPEAT. */
const LEGACY_VERDICTS: Readonly<Record<number, string>> = { [-1]: 'DROP', [-2]: 'ACCEPT', [-5]: 'RETURN' };

/**
 * Rules of table "nat" in the thread's namespace, in order; none when the legacy packet filter does not have the table.
 * Any other query would create it.
 * Same as: `iptables-legacy-save -t nat`
 */
export function listLegacyNat(family: Family): NatRule[] {
  const table = readLegacyTable(family, 'nat');
  return table ? decodeEntries(family, table.entries, table.heads) : [];
}

/**
 * The rules in a table's entries.
 * @param heads built-in chains by the offset of their first entry
 */
export function decodeEntries(
  family: Family,
  bytes: Uint8Array,
  heads: ReadonlyMap<number, string>,
): NatRule[] {
  const view = viewOf(bytes);
  const layout = LAYOUT[family];
  const starts = new Map(heads);
  const places: { at: number; end: number }[] = [];
  for (let at = 0; at + layout.entry <= bytes.length; ) {
    const end = at + view.getUint16(at + layout.offsets + 2, true);
    const target = at + view.getUint16(at + layout.offsets, true);
    const fits = target >= at + layout.entry && target + XT_HEADER_BYTES + VERDICT_BYTES <= end;
    if (!fits || end > bytes.length) throw new Error('Cannot decode rules of the legacy packet filter');
    // A user-defined chain starts after an entry with its name.
    if (textAt(bytes, target + 2) === ERROR_TARGET) starts.set(end, textAt(bytes, target + XT_HEADER_BYTES));
    else places.push({ at, end });
    at = end;
  }
  let chain = '';
  return places.map(({ at, end }) => {
    chain = starts.get(at) ?? chain;
    const target = at + view.getUint16(at + layout.offsets, true);
    const verdict = view.getInt32(target + XT_HEADER_BYTES, true);
    const name = textAt(bytes, target + 2);
    const entry = bytes.subarray(at, end);
    const revision = bytes[target + XT_REVISION_AT] ?? 0;
    const facts = readTarget(family, { name, revision, info: bytes.subarray(target + XT_HEADER_BYTES, end) });
    return {
      ...facts,
      chain,
      target: name || (LEGACY_VERDICTS[verdict] ?? starts.get(verdict) ?? ''),
      ...headerFacts(family, entry),
      ...matchFacts(bytes.subarray(at + layout.entry, target)),
    };
  });
}

function headerFacts(family: Family, entry: Uint8Array): Partial<NatRule> {
  const layout = LAYOUT[family];
  const inverse = entry[layout.inverse] ?? 0;
  const { length } = HEADER[family];
  const [source, destination, ...masks] = [0, 1, 2, 3].map(i => entry.slice(i * length, (i + 1) * length));
  const prefixes = masks.map(prefixOf);
  const match = (address: Uint8Array | undefined, prefix: number | undefined, not: boolean) =>
    address && prefix ? { cidr: { ip: ipFromBytes(address), prefix }, not } : undefined;
  const isOtherwiseInverse = (inverse & ~(INV_SRCIP | INV_DSTIP)) !== 0;
  const hasOtherMask = prefixes.includes(undefined);
  const hasInterface = entry.subarray(layout.masks, layout.masks + 2 * IFNAMSIZ).some(byte => byte !== 0);
  const protocol = (entry[layout.protocol] ?? 0) | ((entry[layout.protocol + 1] ?? 0) << 8);
  return {
    protocol: isOtherwiseInverse ? undefined : protocol || undefined,
    source: match(source, prefixes[0], (inverse & INV_SRCIP) !== 0),
    destination: match(destination, prefixes[1], (inverse & INV_DSTIP) !== 0),
    ...(isOtherwiseInverse || hasOtherMask || hasInterface ? { more: true } : {}),
  };
}

function matchFacts(matches: Uint8Array): Partial<NatRule> {
  const view = viewOf(matches);
  let facts: Partial<NatRule> = {};
  let more = false;
  for (let at = 0; at + XT_HEADER_BYTES <= matches.length; ) {
    const size = view.getUint16(at, true);
    if (size < XT_HEADER_BYTES) break;
    const info = matches.subarray(at + XT_HEADER_BYTES, at + size);
    const known = readMatch({
      name: textAt(matches, at + 2),
      revision: matches[at + XT_REVISION_AT] ?? 0,
      info,
    });
    facts = { ...facts, ...known };
    more ||= known === undefined;
    at += size;
  }
  return more ? { ...facts, more } : facts;
}

function textAt(bytes: Uint8Array, at: number): string {
  return str.decode(bytes.subarray(at), {});
}

/** linux/netfilter/xt_comment.h, XT_MAX_COMMENT_LEN, less the terminating zero: iptables cuts a longer comment. */
export const COMMENT_MAX_BYTES = 255;

/**
 * The rule in `iptables-save` syntax, without the command before its chain.
 * Same as: `<chain> -s <source> -d <destination> -m comment --comment <comment> -j <target>`
 */
export function renderRule({ chain, target, source, destination, comment }: NatRule): string {
  return [
    chain,
    ...renderMatch('-s', source),
    ...renderMatch('-d', destination),
    ...(comment === undefined ? [] : ['-m comment --comment', quote(comment)]),
    `-j ${target}`,
  ].join(' ');
}

/** The length of the prefix that a mask covers; undefined for a mask that covers no prefix. */
export function prefixOf(mask: Uint8Array): number | undefined {
  const bits = Array.from(mask, byte => byte.toString(2).padStart(8, '0')).join('');
  const prefix = bits.indexOf('0') < 0 ? bits.length : bits.indexOf('0');
  return bits.includes('1', prefix) ? undefined : prefix;
}

function renderMatch(flag: string, match: AddressMatch | undefined): string[] {
  return match ? [...(match.not ? ['!'] : []), flag, renderCidr(subnetOf(match.cidr))] : [];
}

/** Quotes a word for iptables-restore, which splits at blanks outside double quotes and uses backslash as an escape. */
export function quote(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}

/**
 * Where the first and last port are in linux/netfilter/xt_tcpudp.h and xt_sctp.h, and which bytes are zero unless the rule also
 * tests something else: flags and options, or ports that packets must not have.
 */
const PORTS: Readonly<Record<string, PortLayout>> = {
  tcp: { source: 0, destination: 4, zero: [8, 9, 11], bytes: 12 },
  udp: { source: 0, destination: 4, zero: [8], bytes: 9 },
  // Source ports count only if a flag says so; the chunks, if another one does.
  sctp: { source: 4, destination: 0, zero: [64], bytes: 68, flags: 60 },
};

interface PortLayout {
  readonly source: number;
  readonly destination: number;
  readonly zero: readonly number[];
  readonly bytes: number;
  /** Where linux/netfilter/xt_sctp.h has XT_SCTP_SRC_PORTS, XT_SCTP_DEST_PORTS and XT_SCTP_CHUNK_TYPES. */
  readonly flags?: number;
}

const XT_SCTP_SRC_PORTS = 1;
const XT_SCTP_DEST_PORTS = 2;

/**
 * linux/netfilter/xt_multiport.h, enum xt_multiport_flags, struct xt_multiport_v1: u8 flags, u8 count, u16 ports[15],
 * u8 pflags[15] (set for the start of a range), u8 invert
 */
const XT_MULTIPORT_DESTINATION = 1;
const MULTIPORT = { ports: 2, rangesFrom: 32, bytes: 48 } as const;

/**
 * The parts of a match that we understand; undefined for a match that restricts the rule in another way: by source ports, by a
 * range, or by ports that packets must not have.
 */
export function readMatch({ name, info }: Extension): Partial<NatRule> | undefined {
  if (name === 'comment') return { comment: textAt(info, 0) };
  if (name === 'multiport') return multiport(info);
  const layout = PORTS[name];
  return layout && info.length >= layout.bytes ? singlePort(layout, info) : undefined;
}

function multiport(info: Uint8Array): Partial<NatRule> | undefined {
  const isMore = info.subarray(MULTIPORT.rangesFrom, MULTIPORT.bytes).some(byte => byte !== 0);
  if (info.length < MULTIPORT.bytes || info[0] !== XT_MULTIPORT_DESTINATION || isMore) return undefined;
  const view = viewOf(info);
  const count = Math.min(info[1] ?? 0, 15);
  return { ports: Array.from({ length: count }, (_, i) => view.getUint16(MULTIPORT.ports + i * 2, true)) };
}

function singlePort(layout: PortLayout, info: Uint8Array): Partial<NatRule> | undefined {
  const view = viewOf(info);
  const range = (at: number) => [view.getUint16(at, true), view.getUint16(at + 2, true)] as const;
  const flags = layout.flags === undefined ? undefined : view.getUint32(layout.flags, true);
  if (layout.zero.some(at => info[at] !== 0)) return undefined;
  if (flags !== undefined && (flags | XT_SCTP_SRC_PORTS) !== (XT_SCTP_SRC_PORTS | XT_SCTP_DEST_PORTS)) {
    return undefined;
  }
  const [lowest, highest] = flags === XT_SCTP_DEST_PORTS ? [0, 0xffff] : range(layout.source);
  const [from, to] = range(layout.destination);
  return lowest === 0 && highest === 0xffff && from === to ? { ports: [from] } : undefined;
}

export function readTarget(family: Family, { name, revision, info }: Extension): Partial<NatRule> {
  // linux/netfilter/xt_mark.h, struct xt_mark_tginfo2: u32 mark, u32 mask.
  if (name === 'MARK' && info.length >= 8) return { target: name, mark: viewOf(info).getUint32(0, true) };
  if (name !== 'DNAT') return { target: name };
  // linux/netfilter/nf_nat.h: struct nf_nat_ipv4_multi_range_compat (revision 0) has u32 rangesize, u32 flags, then the
  // address; struct nf_nat_range and nf_nat_range2 have u32 flags, then sixteen bytes with the address.
  const at = family === 4 && revision === 0 ? 8 : 4;
  const { length } = HEADER[family];
  const bytes = info.slice(at, at + length);
  return { target: name, ...(bytes.length === length ? { to: ipFromBytes(bytes) } : {}) };
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
