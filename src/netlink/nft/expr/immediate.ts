// How does a rule decide, or put a constant into a register?
import { attrs } from '../../codec/attrs.ts';
import { u32be } from '../../codec/fields.ts';
import { data, type Verdict } from '../data.ts';

/** linux/netfilter/nf_tables.h, NFT_REG_VERDICT */
const NFT_REG_VERDICT = 0;

/** linux/netfilter/nf_tables.h, enum nft_immediate_attributes */
export const immediate = attrs('immediate', {
  dreg: [1, u32be],
  data: [2, data],
});

/** Decides about the packet. Same as: `accept`, `drop`, `return`, `jump <chain>`, `goto <chain>` */
export function decide(verdict: Verdict) {
  return { name: 'immediate', data: { dreg: NFT_REG_VERDICT, data: { verdict } } } as const;
}
