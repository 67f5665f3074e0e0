// How does a u32 filter specify which packets match and what happens to them?
import { type Cidr, networkOf } from '../../../net/cidr.ts';
import { ipToBytes } from '../../../net/ip.ts';
import { attrs, type Field, listOf, s16, s32, u8, u16, u16be, u32, u32be } from '../../codec/attrs.ts';
import { struct } from '../../codec/message.ts';
import { action } from './redirect.ts';

/**
 * linux/pkt_cls.h: struct tc_u32_sel { unsigned char flags; unsigned char offshift; unsigned char nkeys;
 * __be16 offmask; __u16 off; short offoff; short hoff; __be32 hmask; struct tc_u32_key keys[]; }
 */
export const tcU32Sel = struct('tc_u32_sel', [
  ['flags', u8],
  ['offshift', u8],
  ['nkeys', u8],
  ['_pad', u8],
  ['offmask', u16be],
  ['off', u16],
  ['offoff', s16],
  ['hoff', s16],
  ['hmask', u32be],
]);

/** linux/pkt_cls.h: struct tc_u32_key { __be32 mask; __be32 val; int off; int offmask; } */
export const tcU32Key = struct('tc_u32_key', [
  ['mask', u32be],
  ['val', u32be],
  ['off', s32],
  ['offmask', s32],
]);

/** linux/pkt_cls.h: a match ends the search. */
const TC_U32_TERMINAL = 1;

type U32Key = ReturnType<typeof tcU32Key.decode>;

/** A selector with the keys that follow it. */
export interface U32Selector {
  readonly flags: number;
  readonly keys: readonly U32Key[];
}

const selector: Field<U32Selector> = {
  encode(writer, { flags, keys }) {
    tcU32Sel.encode(writer, { flags, nkeys: keys.length });
    for (const key of keys) tcU32Key.encode(writer, key);
  },
  decode(bytes) {
    const { flags, nkeys } = tcU32Sel.decode(bytes);
    const keys = Array.from({ length: nkeys }, (_, i) =>
      tcU32Key.decode(bytes.subarray(tcU32Sel.size + i * tcU32Key.size)),
    );
    return { flags, keys };
  },
};

/** `TCA_OPTIONS` of kind `u32`; linux/pkt_cls.h, TCA_U32_*. */
export const u32Options = attrs('u32', {
  classid: [1, u32],
  hash: [2, u32],
  divisor: [4, u32],
  selector: [5, selector],
  actions: [7, listOf(action, { numbered: true })],
  flags: [11, u32],
});

/** Matches every packet: one key with an empty mask. Same as: `u32 match u32 0 0` */
export const MATCH_ALL: U32Selector = { flags: TC_U32_TERMINAL, keys: [tcU32Key.zero] };

/** True when a selector matches every packet. */
export function matchesAll({ flags, keys }: U32Selector): boolean {
  return (flags & TC_U32_TERMINAL) !== 0 && keys.every(key => key.mask === 0 && key.val === 0);
}

/** Which address of a packet is compared with a subnet. */
export type SubnetEnd = 'source' | 'destination';

/** Bytes from the start of the network header to the addresses (RFC 791, RFC 8200). */
const ADDRESS_OFFSET = { 4: { source: 12, destination: 16 }, 6: { source: 8, destination: 24 } } as const;
const WORD_BITS = 32;

/**
 * Matches packets with an address in the subnet: one key for each 32-bit word that the prefix covers at least partly.
 * Same as: `match ip src <subnet>`, `match ip6 dst <subnet>`
 */
export function matchSubnet(subnet: Cidr, end: SubnetEnd): U32Selector {
  const { family } = subnet.ip;
  const words = new DataView(ipToBytes(networkOf(subnet)).buffer);
  const keys = Array.from({ length: Math.ceil(subnet.prefix / WORD_BITS) }, (_, i) => {
    const free = Math.max(0, WORD_BITS - (subnet.prefix - i * WORD_BITS));
    const mask = (0xffffffff << free) >>> 0;
    return { mask, val: words.getUint32(i * 4), off: ADDRESS_OFFSET[family][end] + i * 4, offmask: 0 };
  });
  return keys.length ? { flags: TC_U32_TERMINAL, keys } : MATCH_ALL;
}

/** True when two selectors match the same packets with the same keys. */
export function sameSelector(a: U32Selector, b: U32Selector): boolean {
  return (
    (a.flags & TC_U32_TERMINAL) === (b.flags & TC_U32_TERMINAL) &&
    a.keys.length === b.keys.length &&
    a.keys.every((key, i) => {
      const other = b.keys[i];
      return key.mask === other?.mask && key.val === other.val && key.off === other.off;
    })
  );
}
