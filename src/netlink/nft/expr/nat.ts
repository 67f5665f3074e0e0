// How does a rule translate addresses?
import { attrs, u32be } from '../../codec/attrs.ts';
import { NFPROTO } from '../../nfgenmsg.ts';

/** linux/netfilter/nf_tables.h, enum nft_nat_types */
const NFT_NAT_SNAT = 0;
const NFT_NAT_DNAT = 1;

/** linux/netfilter/nf_tables.h, enum nft_nat_attributes */
export const nat = attrs('nat', {
  type: [1, u32be],
  family: [2, u32be],
  addressRegister: [3, u32be], // NFTA_NAT_REG_ADDR_MIN
  portRegister: [5, u32be], // NFTA_NAT_REG_PROTO_MIN
  flags: [7, u32be],
});

/** linux/netfilter/nf_tables.h, enum nft_masq_attributes */
export const masq = attrs('masq', {
  flags: [1, u32be],
});

/** Redirects the packet's connection to the address and port in two registers. Same as: `dnat ip to <address>:<port>` */
export function dnat(family: 'ip' | 'ip6', addressRegister: number, portRegister: number) {
  return {
    name: 'nat',
    data: { type: NFT_NAT_DNAT, family: NFPROTO[family], addressRegister, portRegister },
  } as const;
}

/** Replaces the source address of the packet's connection with that in a register. Same as: `snat ip to <address>` */
export function snat(family: 'ip' | 'ip6', addressRegister: number) {
  return { name: 'nat', data: { type: NFT_NAT_SNAT, family: NFPROTO[family], addressRegister } } as const;
}

/** Replaces the source address of the packet's connection with one of the outgoing interface. Same as: `masquerade` */
export function masquerade() {
  return { name: 'masq', data: {} } as const;
}
