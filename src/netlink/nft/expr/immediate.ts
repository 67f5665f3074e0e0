// How does a rule set a verdict, or load a constant into a register?
import { attrs, u32be } from '../../codec/attrs.ts';
import { data, type Verdict } from '../data.ts';

/** linux/netfilter/nf_tables.h, NFT_REG_VERDICT */
const NFT_REG_VERDICT = 0;

/** linux/netfilter/nf_tables.h, enum nft_immediate_attributes */
export const immediate = attrs('immediate', {
  dreg: [1, u32be],
  data: [2, data],
});

/** Sets the verdict. Same as: `accept`, `drop`, `return`, `jump <chain>`, `goto <chain>` */
export function decide(verdict: Verdict) {
  return { name: 'immediate', data: { dreg: NFT_REG_VERDICT, data: { verdict } } } as const;
}

/** Loads bytes into the registers from `dreg` on. */
export function loadBytes(dreg: number, value: Uint8Array) {
  return { name: 'immediate', data: { dreg, data: { value } } } as const;
}
