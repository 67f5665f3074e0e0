// How does a rule read metadata of a packet?
import { attrs, u32be } from '../../codec/attrs.ts';

/** linux/netfilter/nf_tables.h, enum nft_meta_keys */
export const META = {
  protocol: 1,
  mark: 3,
  iifname: 6,
  oifname: 7,
  skuid: 10,
  skgid: 11,
  nfproto: 15,
  l4proto: 16,
} as const;

/** linux/netfilter/nf_tables.h, enum nft_meta_attributes */
export const meta = attrs('meta', {
  key: [2, u32be],
  dreg: [1, u32be],
  sreg: [3, u32be],
});

/** Reads one property. Same as: `meta protocol|nfproto|l4proto|mark|iifname|oifname|skuid|skgid` */
export function loadMeta(dreg: number, key: keyof typeof META) {
  return { name: 'meta', data: { key: META[key], dreg } } as const;
}
