// How does a rule compare a register with a value?
import { attrs, u32be } from '../../codec/attrs.ts';
import { data } from '../data.ts';

/** linux/netfilter/nf_tables.h, enum nft_cmp_ops */
const NFT_CMP_EQ = 0;
const NFT_CMP_NEQ = 1;
const ORDER = { '<': 2, '<=': 3, '>': 4, '>=': 5 } as const; // NFT_CMP_LT, _LTE, _GT, _GTE

/** linux/netfilter/nf_tables.h, enum nft_cmp_attributes */
export const cmp = attrs('cmp', {
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
