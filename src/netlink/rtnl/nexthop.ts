// How are the next hops of a multipath route encoded?
import type { Ip } from '../../net/ip.ts';
import { attrs } from '../codec/attrs.ts';
import { type Field, ip, s32, u8, u16 } from '../codec/fields.ts';
import { struct } from '../codec/struct.ts';
import { align4 } from '../codec/writer.ts';

/** One next hop of a route. */
export interface Nexthop {
  readonly gateway?: Ip | undefined;
  /** Index of the outgoing interface. */
  readonly oif: number;
}

/**
 * linux/rtnetlink.h: struct rtnexthop { unsigned short rtnh_len; unsigned char rtnh_flags, rtnh_hops;
 * int rtnh_ifindex; }
 */
export const rtnexthop = struct('rtnexthop', [
  ['length', u16],
  ['flags', u8],
  ['hops', u8],
  ['oif', s32],
]);

/** linux/rtnetlink.h, RTA_*: the attributes that a next hop may have */
const nexthopAttrs = attrs('next hop', { gateway: [5, ip] });

/** RTA_MULTIPATH: structs rtnexthop, each followed by attributes of its own. */
export const nexthops: Field<readonly Nexthop[]> = {
  encode(writer, ways) {
    for (const { gateway, oif } of ways) {
      const start = writer.length;
      rtnexthop.encode(writer, { oif });
      nexthopAttrs.encode(writer, gateway ? { gateway } : {}, {});
      writer.patchU16(start, writer.length - start);
    }
  },
  decode(bytes) {
    const ways: Nexthop[] = [];
    for (let at = 0; at < bytes.length; ) {
      const { length, oif } = rtnexthop.decode(bytes.subarray(at));
      if (length < rtnexthop.size || at + length > bytes.length) {
        throw new Error(`next hop at byte ${at} claims ${length} of ${bytes.length - at} bytes`);
      }
      const { gateway } = nexthopAttrs.decode(bytes.subarray(at + rtnexthop.size, at + length), {});
      ways.push({ gateway, oif });
      at += align4(length);
    }
    return ways;
  },
};
