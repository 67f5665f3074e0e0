// Which expressions can a rule consist of, and how is each written?
//
// The attributes of each kind are numbered in linux/netfilter/nf_tables.h, enum nft_<kind>_attributes.

import { attrs, byKind, bytes, s32be, str, u32be, u64be, type ValuesOf } from '../codec.ts';
import { IP_NFPROTO, NFPROTO, SET_ID } from './message.ts';

/** linux/netfilter.h and linux/netfilter/nf_tables.h, enum nft_verdicts */
export const NFT_JUMP = -3;
export const NFT_GOTO = -4;
export const NFT_RETURN = -5;
export const NF_DROP = 0;
export const NF_ACCEPT = 1;

const verdict = attrs('verdict', { code: [1, s32be], chain: [2, str] });

export const data = attrs('data', { value: [1, bytes], verdict: [2, verdict] });

/** What happens to a packet next: `code` is one of NF_* or NFT_*. */
export interface Verdict {
  readonly code: number;
  readonly chain?: string | undefined;
}

export function toVerdict({ code = 0, chain }: ValuesOf<typeof verdict>): Verdict {
  return { code, ...(chain === undefined ? {} : { chain }) };
}

export function jump(chain: string): Verdict {
  return { code: NFT_JUMP, chain };
}

export function goto(chain: string): Verdict {
  return { code: NFT_GOTO, chain };
}

/** linux/netfilter/nf_tables.h, enum nft_bitwise_ops */
const NFT_BITWISE_BOOL = 0;

/** dreg = (sreg & mask) ^ xor */
const bitwise = attrs('bitwise', {
  sreg: [1, u32be],
  dreg: [2, u32be],
  op: [6, u32be],
  length: [3, u32be],
  mask: [4, data],
  xor: [5, data],
});

/** Keeps the bits of the mask, in place. Same as: `… & <mask>` */
export function maskRegister(register: number, mask: Uint8Array) {
  return {
    name: 'bitwise',
    data: {
      sreg: register,
      dreg: register,
      op: NFT_BITWISE_BOOL,
      length: mask.length,
      mask: { value: mask },
      xor: { value: new Uint8Array(mask.length) },
    },
  } as const;
}

/** linux/netfilter/nf_tables.h, enum nft_cmp_ops */
export const NFT_CMP_EQ = 0;
export const NFT_CMP_NEQ = 1;
const ORDER = { '<': 2, '<=': 3, '>': 4, '>=': 5 } as const; // NFT_CMP_LT, _LTE, _GT, _GTE

const cmp = attrs('cmp', {
  sreg: [1, u32be],
  op: [2, u32be],
  data: [3, data],
});

/** Matches when the register starts with the bytes. Same as: `… == <value>` */
export function isEqual(sreg: number, value: Uint8Array) {
  return { name: 'cmp', data: { sreg, op: NFT_CMP_EQ, data: { value } } } as const;
}

/** Matches when the register does not start with the bytes. Same as: `… != <value>` */
export function isNotEqual(sreg: number, value: Uint8Array) {
  return { name: 'cmp', data: { sreg, op: NFT_CMP_NEQ, data: { value } } } as const;
}

/** Matches when the register, a number in network byte order, is in this relation. Same as: `… < <value>`, and the other signs */
export function isOrdered(sreg: number, order: keyof typeof ORDER, value: Uint8Array) {
  return { name: 'cmp', data: { sreg, op: ORDER[order], data: { value } } } as const;
}

/** linux/netfilter/nf_tables_compat.h, enum nft_match_attributes and nft_target_attributes: the same numbers. */
const extension = attrs('xtables extension', { name: [1, str], revision: [2, u32be], info: [3, bytes] });

const counter = attrs('counter', { bytes: [1, u64be], packets: [2, u64be] });

/** Matches when the iptables match does. Same as: `-m <name> …` */
export function useMatch(name: string, revision: number, info: Uint8Array) {
  return { name: 'match', data: { name, revision, info } } as const;
}

/** Counts packets, as iptables does in each rule. Same as: `counter` */
export function count() {
  return { name: 'counter', data: { bytes: 0n, packets: 0n } } as const;
}

/** linux/netfilter/nf_tables.h, enum nft_ct_keys */
const CT = { state: 0, direction: 1, status: 2, mark: 3, labels: 13 } as const;

const ct = attrs('ct', {
  key: [2, u32be],
  dreg: [1, u32be],
  sreg: [4, u32be],
});

/** Reads a property of the packet's connection. Same as: `ct state|direction|status|mark|label` */
export function loadCt(dreg: number, key: keyof typeof CT) {
  return { name: 'ct', data: { key: CT[key], dreg } } as const;
}

/** linux/netfilter/nf_tables.h, enum nft_fib_result and nft_fib_flags */
const NFT_FIB_RESULT_ADDRTYPE = 3;
const FLAG = { saddr: 1, daddr: 2 } as const; // NFTA_FIB_F_SADDR, NFTA_FIB_F_DADDR

/** linux/rtnetlink.h, RTN_*: types of addresses; `local` is an address of this host. */
export const ADDRESS_TYPES = {
  unicast: 1,
  local: 2,
  broadcast: 3,
  anycast: 4,
  multicast: 5,
  blackhole: 6,
  unreachable: 7,
  prohibit: 8,
} as const;

const fib = attrs('fib', {
  flags: [3, u32be],
  result: [2, u32be],
  dreg: [1, u32be],
});

/** Reads the type of one of the packet's addresses (RTN_*). Same as: `fib saddr|daddr type` */
export function loadAddressType(dreg: number, which: keyof typeof FLAG) {
  return { name: 'fib', data: { flags: FLAG[which], result: NFT_FIB_RESULT_ADDRTYPE, dreg } } as const;
}

/** linux/netfilter/nf_tables.h, NFT_REG_VERDICT */
const NFT_REG_VERDICT = 0;

const immediate = attrs('immediate', { dreg: [1, u32be], data: [2, data] });

/** Sets the verdict. Same as: `accept`, `drop`, `return`, `jump <chain>`, `goto <chain>` */
export function decide(verdict: Verdict) {
  return { name: 'immediate', data: { dreg: NFT_REG_VERDICT, data: { verdict } } } as const;
}

/** Loads bytes into the registers from `dreg` on. */
export function loadBytes(dreg: number, value: Uint8Array) {
  return { name: 'immediate', data: { dreg, data: { value } } } as const;
}

/** linux/netfilter/nf_tables.h, enum nft_lookup_flags */
const NFT_LOOKUP_F_INV = 1;

const lookup = attrs('lookup', {
  sreg: [2, u32be],
  dreg: [3, u32be],
  set: [1, str],
  setId: [4, u32be],
  flags: [5, u32be],
});

/** Matches when the registers from `sreg` on are a key of the set, which is in the same table or batch. Same as: `… @<set>` */
export function isInSet(set: string, sreg: number) {
  return { name: 'lookup', data: { sreg, set, setId: SET_ID } } as const;
}

/** Matches when the registers from `sreg` on are not a key of the set. Same as: `… != @<set>` */
export function isNotInSet(set: string, sreg: number) {
  return { name: 'lookup', data: { sreg, set, setId: SET_ID, flags: NFT_LOOKUP_F_INV } } as const;
}

/** Matches when the map has the key, and loads its data into the registers from `dreg` on. Same as: `… map @<map>` */
export function lookUp(map: string, sreg: number, dreg: number) {
  return { name: 'lookup', data: { sreg, dreg, set: map, setId: SET_ID } } as const;
}

/** Applies the map's verdict for the key. Same as: `… vmap @<map>` */
export function followVerdict(map: string, sreg: number) {
  return lookUp(map, sreg, NFT_REG_VERDICT);
}

/** linux/netfilter/nf_tables.h, enum nft_meta_keys */
export const META = {
  protocol: 1,
  mark: 3,
  iifname: 6,
  oifname: 7,
  skuid: 10,
  skgid: 11,
  nfproto: 15,
  l4proto: 16,
} as const;

const meta = attrs('meta', {
  key: [2, u32be],
  dreg: [1, u32be],
  sreg: [3, u32be],
});

/** Reads one property. Same as: `meta protocol|nfproto|l4proto|mark|iifname|oifname|skuid|skgid` */
export function loadMeta(dreg: number, key: keyof typeof META) {
  return { name: 'meta', data: { key: META[key], dreg } } as const;
}

/** linux/netfilter/nf_tables.h, enum nft_nat_types */
const NFT_NAT_SNAT = 0;
const NFT_NAT_DNAT = 1;

const nat = attrs('nat', {
  type: [1, u32be],
  family: [2, u32be],
  addressRegister: [3, u32be], // NFTA_NAT_REG_ADDR_MIN
  portRegister: [5, u32be], // NFTA_NAT_REG_PROTO_MIN
  flags: [7, u32be],
});

const masq = attrs('masq', { flags: [1, u32be] });

const redir = attrs('redir', { portRegister: [1, u32be] }); // NFTA_REDIR_REG_PROTO_MIN

/** Redirects the packet's connection to the address and port in two registers. Same as: `dnat ip to <address>:<port>` */
export function dnat(family: 'ip' | 'ip6', addressRegister: number, portRegister: number) {
  return {
    name: 'nat',
    data: { type: NFT_NAT_DNAT, family: NFPROTO[family], addressRegister, portRegister },
  } as const;
}

/** Replaces the source address of the packet's connection with that in a register. Same as: `snat ip to <address>` */
export function snat(family: 'ip' | 'ip6', addressRegister: number) {
  return { name: 'nat', data: { type: NFT_NAT_SNAT, family: NFPROTO[family], addressRegister } } as const;
}

/** Replaces the source address of the packet's connection with one of the outgoing interface. Same as: `masquerade` */
export function masquerade() {
  return { name: 'masq', data: {} } as const;
}

/** linux/netfilter/nf_tables.h, enum nft_payload_bases: headers by nft's names of their layers. */
export const HEADERS = { ll: 0, nh: 1, th: 2 } as const;

const payload = attrs('payload', {
  dreg: [1, u32be],
  base: [2, u32be],
  offset: [3, u32be],
  length: [4, u32be],
});

/** Reads from the header of the link, network or transport layer. Same as: `@ll,<offset>,<length>`, in bytes instead of bits */
export function loadHeader(layer: keyof typeof HEADERS, dreg: number, offset: number, length: number) {
  return { name: 'payload', data: { dreg, base: HEADERS[layer], offset, length } } as const;
}

/** linux/netfilter/nf_tables.h, enum nft_range_ops */
const NFT_RANGE_NEQ = 1;

const range = attrs('range', {
  sreg: [1, u32be],
  op: [2, u32be],
  from: [3, data],
  to: [4, data],
});

/** Matches when the register, as a number in network byte order, is outside the range. Same as: `… != <from>-<to>` */
export function isOutside(sreg: number, from: Uint8Array, to: Uint8Array) {
  return {
    name: 'range',
    data: { sreg, op: NFT_RANGE_NEQ, from: { value: from }, to: { value: to } },
  } as const;
}

/** To add a kind, add its attributes above and its name here. */
const kinds = {
  bitwise,
  cmp,
  counter,
  ct,
  fib,
  immediate,
  lookup,
  masq,
  match: extension,
  meta,
  nat,
  payload,
  range,
  redir,
  target: extension,
};

export const expression = attrs('expression', {
  name: [1, str],
  data: [2, byKind('name', kinds)],
});

/** One step of a rule; evaluation of a rule stops at the first step that does not match. */
export type Expression = {
  [K in keyof typeof kinds]: { readonly name: K; readonly data: ValuesOf<(typeof kinds)[K]> };
}[keyof typeof kinds];

/**
 * linux/netfilter/nf_tables.h, enum nft_registers: four registers of sixteen bytes, numbered from 1, whose quarters are
 * numbered from 8. Each part of a concatenation takes as many quarters as it needs. A quarter at the start of a register is
 * referred to by the register's number, as in the kernel's answers.
 */
export const REG = { first: 1, quarter: (n: number) => (n % 4 === 0 ? 1 + n / 4 : 8 + n) } as const;

/** Offsets and length of addresses in the network header, in bytes. */
export const HEADER = {
  4: { saddr: 12, daddr: 16, length: 4 },
  6: { saddr: 8, daddr: 24, length: 16 },
} as const;

/** Matches packets of one IP version; needed in `inet` chains. Same as: `meta nfproto ipv4|ipv6` */
export function matchFamily(family: 4 | 6): Expression[] {
  return [loadMeta(REG.first, 'nfproto'), isEqual(REG.first, Uint8Array.of(IP_NFPROTO[family]))];
}

/** Reads the source or destination address. Same as: `ip|ip6 saddr|daddr` */
export function loadAddress(family: 4 | 6, which: 'saddr' | 'daddr', dreg: number): Expression {
  const header = HEADER[family];
  return loadHeader('nh', dreg, header[which], header.length);
}

/** linux/netfilter/nf_conntrack_common.h, NF_CT_LABELS_MAX_SIZE */
const LABEL_BYTES = 16;

/** Sets a label bit on the packet's connection, which keeps its other labels. Same as: `ct label set <bit>` */
export function setLabel(bit: number, register: number): Expression[] {
  return [loadBytes(register, labelBytes(bit)), { name: 'ct', data: { key: CT.labels, sreg: register } }];
}

/** Matches connections with the label. Same as: `ct label <bit>` */
export function matchLabel(bit: number): Expression[] {
  return [
    loadCt(REG.first, 'labels'),
    maskRegister(REG.first, labelBytes(bit)),
    isNotEqual(REG.first, new Uint8Array(LABEL_BYTES)),
  ];
}

/** The bit in little-endian order. On other machines nft shows a different number, but setting and matching still agree. */
function labelBytes(bit: number): Uint8Array {
  const bytes = new Uint8Array(LABEL_BYTES);
  bytes[bit >> 3] = 1 << (bit & 7);
  return bytes;
}

/** Registers contain numbers that are not part of a packet in host byte order. */
export function hostU32(value: number): Uint8Array {
  return new Uint8Array(new Uint32Array([value]).buffer);
}
