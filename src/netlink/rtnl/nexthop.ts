// How are the next hops of a multipath route encoded?
import type { Ip } from '../../net/ip.ts';
import { attrs, type Field, ip, type RawAttribute, s32, u8, u16 } from '../codec/attrs.ts';
import { align4 } from '../codec/bytes.ts';
import { struct } from '../codec/message.ts';
import { addressFamily } from './family.ts';

/** linux/rtnetlink.h: the gateway is on the link, whatever the addresses say. The kernel refuses most other flags of its own. */
export const RTNH_F_ONLINK = 4;

/** One next hop of a route. */
export interface Nexthop {
  readonly gateway?: Ip | undefined;
  /** Index of the outgoing interface. */
  readonly oif: number;
  readonly onlink?: boolean | undefined;
  /** Its share of the traffic, less one. */
  readonly hops?: number | undefined;
  /** Further attributes that the kernel told, as they are. */
  readonly unknown?: readonly RawAttribute[] | undefined;
}

/** RTA_VIA: a gateway of the other family. linux/rtnetlink.h: struct rtvia { __kernel_sa_family_t rtvia_family; __u8 rtvia_addr[]; } */
export const via: Field<Ip> = {
  encode(writer, gateway) {
    writer.u16(addressFamily(gateway));
    ip.encode(writer, gateway, {});
  },
  decode: bytes => ip.decode(bytes.subarray(2), {}),
};

/** The attribute that holds the gateway of a route of that family. */
export function gatewayOf(
  family: Ip['family'] | undefined,
  gateway: Ip | undefined,
): { gateway?: Ip; via?: Ip } {
  if (gateway === undefined) return {};
  return family === undefined || gateway.family === family ? { gateway } : { via: gateway };
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
const nexthopAttrs = attrs('next hop', { gateway: [5, ip], via: [18, via] });

/** RTA_MULTIPATH: structs rtnexthop, each followed by attributes of its own. */
export const nexthops: Field<readonly Nexthop[]> = {
  encode(writer, ways, route) {
    const { dst } = route as { readonly dst?: Ip };
    for (const { gateway, oif, onlink, hops = 0, unknown = [] } of ways) {
      const start = writer.length;
      rtnexthop.encode(writer, { oif, hops, flags: onlink ? RTNH_F_ONLINK : 0 });
      nexthopAttrs.encode(writer, { ...gatewayOf(dst?.family, gateway), unknown: [...unknown] }, {});
      writer.patchU16(start, writer.length - start);
    }
  },
  decode(bytes) {
    const ways: Nexthop[] = [];
    for (let at = 0; at < bytes.length; ) {
      const { length, oif, flags, hops } = rtnexthop.decode(bytes.subarray(at));
      if (length < rtnexthop.size || at + length > bytes.length) {
        throw new Error(`next hop at byte ${at} claims ${length} of ${bytes.length - at} bytes`);
      }
      const own = nexthopAttrs.decode(bytes.subarray(at + rtnexthop.size, at + length), {});
      ways.push({
        gateway: own.gateway ?? own.via,
        oif,
        ...(flags & RTNH_F_ONLINK ? { onlink: true } : {}),
        ...(hops ? { hops } : {}),
        ...(own.unknown ? { unknown: own.unknown } : {}),
      });
      at += align4(length);
    }
    return ways;
  },
};
