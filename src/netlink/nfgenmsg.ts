// Which header do all netfilter messages share?
import { u8, u16be } from './codec/attrs.ts';
import { struct } from './codec/message.ts';

/** linux/netfilter.h: the families that a table can belong to, by nft's names. */
export const NFPROTO = { inet: 1, ip: 2, arp: 3, netdev: 5, bridge: 7, ip6: 10 } as const;

/** The family of a message by nft's name; undefined for others. */
export function familyOf(number: number): keyof typeof NFPROTO | undefined {
  return FAMILIES.find(name => NFPROTO[name] === number);
}

const FAMILIES = Object.keys(NFPROTO) as (keyof typeof NFPROTO)[];

/** linux/netfilter/nfnetlink.h: struct nfgenmsg { __u8 nfgen_family; __u8 version; __be16 res_id; } */
export const nfgenmsg = struct('nfgenmsg', [
  ['family', u8],
  ['version', u8],
  ['resId', u16be],
]);
