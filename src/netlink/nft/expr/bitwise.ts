// How does a rule mask bits of a register?
import { attrs, u32be } from '../../codec/attrs.ts';
import { data } from '../data.ts';

/** linux/netfilter/nf_tables.h, enum nft_bitwise_ops */
const NFT_BITWISE_BOOL = 0;

/** linux/netfilter/nf_tables.h, enum nft_bitwise_attributes: dreg = (sreg & mask) ^ xor */
export const bitwise = attrs('bitwise', {
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
