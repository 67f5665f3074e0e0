// How does a rule use iptables matches, targets and counters, as iptables with nf_tables writes them?
import { attrs, bytes, str, u32be, u64be } from '../../codec/attrs.ts';

/** linux/netfilter/nf_tables_compat.h, enum nft_match_attributes */
export const match = attrs('match', {
  name: [1, str],
  revision: [2, u32be],
  info: [3, bytes],
});

/** linux/netfilter/nf_tables_compat.h, enum nft_target_attributes */
export const target = attrs('target', {
  name: [1, str],
  revision: [2, u32be],
  info: [3, bytes],
});

/** linux/netfilter/nf_tables.h, enum nft_counter_attributes */
export const counter = attrs('counter', {
  bytes: [1, u64be],
  packets: [2, u64be],
});

/** Matches when the iptables match does. Same as: `-m <name> …` */
export function useMatch(name: string, revision: number, info: Uint8Array) {
  return { name: 'match', data: { name, revision, info } } as const;
}

/** Counts packets, as iptables does in each rule. Same as: `counter` */
export function count() {
  return { name: 'counter', data: { bytes: 0n, packets: 0n } } as const;
}
