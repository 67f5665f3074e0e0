// How does a rule look up an address of the packet in the routing tables?
import { attrs, u32be } from '../../codec/attrs.ts';

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

/** linux/netfilter/nf_tables.h, enum nft_fib_attributes */
export const fib = attrs('fib', {
  flags: [3, u32be],
  result: [2, u32be],
  dreg: [1, u32be],
});

/** Reads the type of one of the packet's addresses (RTN_*). Same as: `fib saddr|daddr type` */
export function loadAddressType(dreg: number, which: keyof typeof FLAG) {
  return { name: 'fib', data: { flags: FLAG[which], result: NFT_FIB_RESULT_ADDRTYPE, dreg } } as const;
}
