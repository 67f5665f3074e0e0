// How does a rule change the byte order of a register?
import { attrs } from '../../codec/attrs.ts';
import { u32be } from '../../codec/fields.ts';

/** linux/netfilter/nf_tables.h, enum nft_byteorder_attributes; `size` is that of one number, in bytes. */
export const byteorder = attrs('byteorder', {
  sreg: [1, u32be],
  dreg: [2, u32be],
  op: [3, u32be],
  length: [4, u32be],
  size: [5, u32be],
});
