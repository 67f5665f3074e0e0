// How are common statements of a rule composed of expressions?
import { NFPROTO } from '../nfgenmsg.ts';
import {
  addLabels,
  type Expression,
  isEqual,
  isNotEqual,
  loadBytes,
  loadCt,
  loadMeta,
  loadNetworkHeader,
  maskRegister,
} from './expr.ts';

/**
 * linux/netfilter/nf_tables.h, enum nft_registers: four registers of sixteen bytes, numbered from 1, whose quarters are
 * numbered from 8. Each part of a concatenation takes as many quarters as it needs. A quarter at the start of a register is
 * referred to by the register's number, as in the kernel's answers.
 */
export const REG = { first: 1, quarter: (n: number) => (n % 4 === 0 ? 1 + n / 4 : 8 + n) } as const;

/** Offsets and length of addresses in the network header, in bytes. */
const HEADER = {
  4: { saddr: 12, daddr: 16, length: 4 },
  6: { saddr: 8, daddr: 24, length: 16 },
} as const;

/** Matches packets of one IP version; needed in `inet` chains. Same as: `meta nfproto ipv4|ipv6` */
export function matchFamily(family: 4 | 6): Expression[] {
  const value = NFPROTO[family === 4 ? 'ip' : 'ip6'];
  return [loadMeta(REG.first, 'nfproto'), isEqual(REG.first, Uint8Array.of(value))];
}

/** Reads the source or destination address. Same as: `ip|ip6 saddr|daddr` */
export function loadAddress(family: 4 | 6, which: 'saddr' | 'daddr', dreg: number): Expression {
  const header = HEADER[family];
  return loadNetworkHeader(dreg, header[which], header.length);
}

/** linux/netfilter/nf_conntrack_common.h, NF_CT_LABELS_MAX_SIZE */
const LABEL_BYTES = 16;

/** Sets a label bit on the packet's connection, which keeps its other labels. Same as: `ct label set <bit>` */
export function setLabel(bit: number, register: number): Expression[] {
  return [loadBytes(register, labelBytes(bit)), addLabels(register)];
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
