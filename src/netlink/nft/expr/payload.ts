// How does a rule read bytes of the packet?
import { attrs, u32be } from '../../codec/attrs.ts';

/** linux/netfilter/nf_tables.h, enum nft_payload_bases */
const NFT_PAYLOAD_LL_HEADER = 0;
const NFT_PAYLOAD_NETWORK_HEADER = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER = 2;

/** linux/netfilter/nf_tables.h, enum nft_payload_attributes */
export const payload = attrs('payload', {
  dreg: [1, u32be],
  base: [2, u32be],
  offset: [3, u32be],
  length: [4, u32be],
});

/** Reads from the link layer header. Same as: `@ll,<offset>,<length>`, in bytes instead of bits */
export function loadLinkHeader(dreg: number, offset: number, length: number) {
  return { name: 'payload', data: { dreg, base: NFT_PAYLOAD_LL_HEADER, offset, length } } as const;
}

/** Reads from the network header. Same as: `@nh,<offset>,<length>`, in bytes instead of bits */
export function loadNetworkHeader(dreg: number, offset: number, length: number) {
  return { name: 'payload', data: { dreg, base: NFT_PAYLOAD_NETWORK_HEADER, offset, length } } as const;
}

/** Reads from the transport header. Same as: `@th,<offset>,<length>`, in bytes instead of bits */
export function loadTransportHeader(dreg: number, offset: number, length: number) {
  return { name: 'payload', data: { dreg, base: NFT_PAYLOAD_TRANSPORT_HEADER, offset, length } } as const;
}
