// How does a rule ask a set or a map?
import { attrs } from '../../codec/attrs.ts';
import { str, u32be } from '../../codec/fields.ts';
import type { NftSet } from '../set.ts';
import { SET_ID } from '../set.ts';

/** linux/netfilter/nf_tables.h, enum nft_lookup_flags */
const NFT_LOOKUP_F_INV = 1;
/** Where verdicts go: linux/netfilter/nf_tables.h, NFT_REG_VERDICT */
const NFT_REG_VERDICT = 0;

/** linux/netfilter/nf_tables.h, enum nft_lookup_attributes */
export const lookup = attrs('lookup', {
  sreg: [2, u32be],
  dreg: [3, u32be],
  set: [1, str],
  setId: [4, u32be],
  flags: [5, u32be],
});

/** Goes on when the registers from `sreg` are a key of the set. Same as: `… @<set>` */
export function isInSet(set: NftSet, sreg: number) {
  return { name: 'lookup', data: { sreg, set: set.name, setId: SET_ID } } as const;
}

/** Goes on when the registers from `sreg` are no key of the set. Same as: `… != @<set>` */
export function isNotInSet(set: NftSet, sreg: number) {
  return { name: 'lookup', data: { sreg, set: set.name, setId: SET_ID, flags: NFT_LOOKUP_F_INV } } as const;
}

/** Goes on when the map has the key, with its data in the registers from `dreg`. Same as: `… map @<map>` */
export function lookUp(map: NftSet, sreg: number, dreg: number) {
  return { name: 'lookup', data: { sreg, dreg, set: map.name, setId: SET_ID } } as const;
}

/** Does what the map's verdict for the key says. Same as: `… vmap @<map>` */
export function followVerdict(map: NftSet, sreg: number) {
  return lookUp(map, sreg, NFT_REG_VERDICT);
}
