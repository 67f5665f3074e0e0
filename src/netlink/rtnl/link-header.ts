// Which fixed header do link messages carry, and what do its flags mean?
import { s32, u8, u16, u32 } from '../codec/attrs.ts';
import { struct } from '../codec/message.ts';

/**
 * linux/rtnetlink.h: struct ifinfomsg { unsigned char ifi_family; unsigned char __ifi_pad; unsigned short ifi_type;
 * int ifi_index; unsigned ifi_flags; unsigned ifi_change; }
 */
export const ifinfomsg = struct('ifinfomsg', [
  ['family', u8],
  ['_pad', u8],
  ['type', u16],
  ['index', s32],
  ['flags', u32],
  ['change', u32],
]);

/** linux/if.h */
export const IFF_UP = 0x1;
export const IFF_LOOPBACK = 0x8;
/** Neither ARP nor neighbour discovery: a dummy, or an ipvlan of mode l3. */
export const IFF_NOARP = 0x80;
export const IFF_PROMISC = 0x100;
export const IFF_ALLMULTI = 0x200;
export const IFF_MULTICAST = 0x1000;
/** Carrier: of a bridge, that a port of it is up and has one. */
export const IFF_LOWER_UP = 0x10000;

/** linux/if.h, RFC 2863 operational states as `IFLA_OPERSTATE` has them. */
export const OPERSTATES = [
  'unknown',
  'notpresent',
  'down',
  'lowerlayerdown',
  'testing',
  'dormant',
  'up',
] as const;
