// What does a rule of iptables' table "nat" contain, and how does the kernel represent the extensions of one?

import { type Cidr, type Family, type Ip, ipFromBytes, renderCidr, subnetOf } from '../../net/ip.ts';

/** An address that packets must have, or with `not`, must not have. */
export interface AddressMatch {
  readonly cidr: Cidr;
  readonly not: boolean;
}

/** The parts of a rule that plugins inspect. */
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

/** A match or target as bytes, in the layout given by its name and revision. */
export interface Extension {
  readonly name: string;
  readonly revision: number;
  readonly info: Uint8Array;
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
  if (name === 'comment') return { comment: textOf(info) };
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

/** The effect of a target. */
export function readTarget(family: Family, { name, revision, info }: Extension): Partial<NatRule> {
  return { target: name, ...markOf(name, info), ...destinationOf(family, name, revision, info) };
}

/** linux/netfilter/xt_mark.h, struct xt_mark_tginfo2: u32 mark, u32 mask. */
function markOf(name: string, info: Uint8Array): Partial<NatRule> {
  if (name !== 'MARK' || info.length < 8) return {};
  return { mark: new DataView(info.buffer, info.byteOffset).getUint32(0, true) };
}

/**
 * linux/netfilter/nf_nat.h: struct nf_nat_ipv4_multi_range_compat (revision 0) has u32 rangesize, u32 flags, then the
 * address; struct nf_nat_range and nf_nat_range2 have u32 flags, then sixteen bytes with the address.
 */
function destinationOf(family: Family, name: string, revision: number, info: Uint8Array): Partial<NatRule> {
  if (name !== 'DNAT') return {};
  const at = family === 4 && revision === 0 ? 8 : 4;
  const bytes = info.slice(at, at + (family === 4 ? 4 : 16));
  return bytes.length === (family === 4 ? 4 : 16) ? { to: ipFromBytes(bytes) satisfies Ip } : {};
}

function viewOf(info: Uint8Array): DataView {
  return new DataView(info.buffer, info.byteOffset, info.byteLength);
}

function textOf(info: Uint8Array): string {
  const end = info.indexOf(0);
  return new TextDecoder().decode(end < 0 ? info : info.subarray(0, end));
}
