// How does a rule read or set the connection tracking data of a packet?
import { attrs, u32be } from '../../codec/attrs.ts';

/** linux/netfilter/nf_tables.h, enum nft_ct_keys */
const CT = { state: 0, direction: 1, status: 2, mark: 3, labels: 13 } as const;

/** linux/netfilter/nf_tables.h, enum nft_ct_attributes */
export const ct = attrs('ct', {
  key: [2, u32be],
  dreg: [1, u32be],
  sreg: [4, u32be],
});

/** Reads a property of the packet's connection. Same as: `ct state|direction|status|mark|label` */
export function loadCt(dreg: number, key: keyof typeof CT) {
  return { name: 'ct', data: { key: CT[key], dreg } } as const;
}

/** Adds the labels in a register to the packet's connection, which keeps its existing labels. Same as: `ct label set <bit>` */
export function addLabels(sreg: number) {
  return { name: 'ct', data: { key: CT.labels, sreg } } as const;
}
