// What do iptables extensions contain, in the kernel's representation?
import { type Ip, ipFromBytes } from '../../net/ip.ts';
import type { Family, NatRule } from './nat-rule.ts';

/** A match or target as bytes, in the layout given by its name and revision. */
export interface Extension {
  readonly name: string;
  readonly revision: number;
  readonly info: Uint8Array;
}

/** Offset of the destination port range in linux/netfilter/xt_tcpudp.h and xt_sctp.h, and the bytes needed to read it. */
const PORTS: Readonly<Record<string, { readonly at: number; readonly least: number }>> = {
  tcp: { at: 4, least: 8 },
  udp: { at: 4, least: 8 },
  sctp: { at: 0, least: 4 },
};

/** linux/netfilter/xt_multiport.h, enum xt_multiport_flags, struct xt_multiport_v1: u8 flags, u8 count, u16 ports[15] */
const XT_MULTIPORT_DESTINATION = 1;
const MULTIPORT_PORTS_AT = 2;

/** The parts of a match that we understand; undefined for a match that restricts the rule in an unknown way. */
export function readMatch({ name, info }: Extension): Partial<NatRule> | undefined {
  const view = new DataView(info.buffer, info.byteOffset, info.byteLength);
  if (name === 'comment') return { comment: textOf(info) };
  if (name === 'multiport' && info.length >= 32 && info[0] === XT_MULTIPORT_DESTINATION) {
    const count = Math.min(info[1] ?? 0, 15);
    return {
      ports: Array.from({ length: count }, (_, i) => view.getUint16(MULTIPORT_PORTS_AT + i * 2, true)),
    };
  }
  const layout = PORTS[name];
  if (layout === undefined || info.length < layout.least) return undefined;
  const [from, to] = [view.getUint16(layout.at, true), view.getUint16(layout.at + 2, true)];
  return from === to ? { ports: [from] } : undefined;
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

function textOf(info: Uint8Array): string {
  const end = info.indexOf(0);
  return new TextDecoder().decode(end < 0 ? info : info.subarray(0, end));
}
