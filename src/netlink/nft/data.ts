// Which values do expressions and elements contain: bytes, or a verdict?
import { attrs, bytes, s32be, str } from '../codec/attrs.ts';

/** linux/netfilter.h and linux/netfilter/nf_tables.h, enum nft_verdicts */
export const NFT_JUMP = -3;
export const NFT_GOTO = -4;
export const NFT_RETURN = -5;
export const NF_DROP = 0;
export const NF_ACCEPT = 1;

/** linux/netfilter/nf_tables.h, enum nft_verdict_attributes */
const verdict = attrs('verdict', {
  code: [1, s32be],
  chain: [2, str],
});

/** linux/netfilter/nf_tables.h, enum nft_data_attributes */
export const data = attrs('data', {
  value: [1, bytes],
  verdict: [2, verdict],
});

/** What happens to a packet next: `code` is one of NF_* or NFT_*. */
export interface Verdict {
  readonly code: number;
  readonly chain?: string;
}

/** Same as: `jump <chain>` */
export function jump(chain: string): Verdict {
  return { code: NFT_JUMP, chain };
}

/** Same as: `goto <chain>` */
export function goto(chain: string): Verdict {
  return { code: NFT_GOTO, chain };
}
