// How does a rule ask the routing tables about an address of the packet?
import { attrs } from '../../codec/attrs.ts';
import { u32be } from '../../codec/fields.ts';

/** linux/netfilter/nf_tables.h, enum nft_fib_result and nft_fib_flags */
const NFT_FIB_RESULT_ADDRTYPE = 3;
const NFTA_FIB_F_DADDR = 2;

/** linux/rtnetlink.h: an address of this host. */
export const RTN_LOCAL = 2;

/** linux/netfilter/nf_tables.h, enum nft_fib_attributes */
export const fib = attrs('fib', {
  flags: [3, u32be],
  result: [2, u32be],
  dreg: [1, u32be],
});

/** Reads which kind of address the destination is (RTN_*). Same as: `fib daddr type` */
export function loadDestinationType(dreg: number) {
  return { name: 'fib', data: { flags: NFTA_FIB_F_DADDR, result: NFT_FIB_RESULT_ADDRTYPE, dreg } } as const;
}
