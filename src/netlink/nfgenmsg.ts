// Which header do messages to the packet filter carry, whatever part of it they are for?
import { u8, u16be } from './codec/fields.ts';
import { struct } from './codec/struct.ts';

/** linux/netfilter.h: the families a table can belong to, by the names nft gives them. */
export const NFPROTO = { inet: 1, ip: 2, arp: 3, netdev: 5, bridge: 7, ip6: 10 } as const;

/** linux/netfilter/nfnetlink.h: struct nfgenmsg { __u8 nfgen_family; __u8 version; __be16 res_id; } */
export const nfgenmsg = struct('nfgenmsg', [
  ['family', u8],
  ['version', u8],
  ['resId', u16be],
]);
