// How does a rule check that a register's value is outside a range?
import { attrs, u32be } from '../../codec/attrs.ts';
import { data } from '../data.ts';

/** linux/netfilter/nf_tables.h, enum nft_range_ops */
const NFT_RANGE_NEQ = 1;

/** linux/netfilter/nf_tables.h, enum nft_range_attributes */
export const range = attrs('range', {
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
