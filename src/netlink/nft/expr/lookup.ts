// How does a rule look up a key in a set or map?
import { attrs, str, u32be } from '../../codec/attrs.ts';
import { SET_ID } from '../set.ts';

/** linux/netfilter/nf_tables.h, enum nft_lookup_flags */
const NFT_LOOKUP_F_INV = 1;
/** The register for verdicts: linux/netfilter/nf_tables.h, NFT_REG_VERDICT */
const NFT_REG_VERDICT = 0;

/** linux/netfilter/nf_tables.h, enum nft_lookup_attributes */
export const lookup = attrs('lookup', {
  sreg: [2, u32be],
  dreg: [3, u32be],
  set: [1, str],
  setId: [4, u32be],
  flags: [5, u32be],
});

/** A set or map of the same table, or of the same batch. */
interface NamedSet {
  readonly name: string;
}

/** Matches when the registers from `sreg` on are a key of the set. Same as: `… @<set>` */
export function isInSet(set: NamedSet, sreg: number) {
  return { name: 'lookup', data: { sreg, set: set.name, setId: SET_ID } } as const;
}

/** Matches when the registers from `sreg` on are not a key of the set. Same as: `… != @<set>` */
export function isNotInSet(set: NamedSet, sreg: number) {
  return { name: 'lookup', data: { sreg, set: set.name, setId: SET_ID, flags: NFT_LOOKUP_F_INV } } as const;
}

/** Matches when the map has the key, and loads its data into the registers from `dreg` on. Same as: `… map @<map>` */
export function lookUp(map: NamedSet, sreg: number, dreg: number) {
  return { name: 'lookup', data: { sreg, dreg, set: map.name, setId: SET_ID } } as const;
}

/** Applies the map's verdict for the key. Same as: `… vmap @<map>` */
export function followVerdict(map: NamedSet, sreg: number) {
  return lookUp(map, sreg, NFT_REG_VERDICT);
}
