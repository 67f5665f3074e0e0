// Are routes described to the kernel, and read from it, byte for byte?
import { describe, expect, test } from 'bun:test';
import { parseCidr, parseIp } from '../../../src/net/ip.ts';
import { decodeMessages } from '../../../src/netlink/codec.ts';
import { RT_SCOPE_HOST, RT_SCOPE_LINK } from '../../../src/netlink/rtnl/addr.ts';
import {
  addRoute,
  decodeRoute,
  listRoutes,
  prependRoute,
  removeRoute,
  replaceRoute,
  rtmsg,
  rtnexthop,
} from '../../../src/netlink/rtnl/route.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

// `ip` sends the same but for the order of attributes and NLA_F_NESTED, which it leaves out.

test('struct rtmsg has 12 bytes, struct rtnexthop 8', () => {
  expect([rtmsg.size, rtnexthop.size]).toEqual([12, 8]);
});

describe('addRoute()', () => {
  // ip route add 10.2.0.0/16 via 10.1.0.2 dev br0 metric 7
  const V4 = `
  3c 00 00 00  nlmsg_len 60
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  rtm_family 2
  10  rtm_dst_len 16
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  00  rtm_scope 0
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 01 00  RTA_DST
    0a 02 00 00  10.2.0.0
  08 00 05 00  RTA_GATEWAY
    0a 01 00 02  10.1.0.2
  08 00 04 00  RTA_OIF
    02 00 00 00  2
  08 00 06 00  RTA_PRIORITY
    07 00 00 00  7
`;

  test('sends an IPv4 route through a gateway', () => {
    const route = {
      dst: parseCidr('10.2.0.0/16'),
      gateway: parseIp('10.1.0.2'),
      oif: 2,
      priority: 7,
    };
    expect(sentBy(socket => addRoute(socket, route))).toEqual(bytesOf(V4));
  });

  // ip -6 route add default via fd00:1::2 dev br0 mtu 1280
  const V6 = `
  58 00 00 00  nlmsg_len 88
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  0a  rtm_family 10
  00  rtm_dst_len 0
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  00  rtm_scope 0
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  14 00 01 00  RTA_DST
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ::
  14 00 05 00  RTA_GATEWAY
    fd 00 00 01 00 00 00 00 00 00 00 00 00 00 00 02  fd00:1::2
  08 00 04 00  RTA_OIF
    02 00 00 00  2
  0c 00 08 80  RTA_METRICS (NLA_F_NESTED) {
    08 00 02 00  RTAX_MTU
      00 05 00 00  1280
  }
`;

  test('sends an IPv6 default route with metrics', () => {
    const route = { dst: parseCidr('::/0'), gateway: parseIp('fd00:1::2'), oif: 2, mtu: 1280 };
    expect(sentBy(socket => addRoute(socket, route))).toEqual(bytesOf(V6));
  });

  // ip route add 10.3.0.0/16 dev br0 table 1000
  const TABLE = `
  34 00 00 00  nlmsg_len 52
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  rtm_family 2
  10  rtm_dst_len 16
  00  rtm_src_len 0
  00  rtm_tos 0
  00  rtm_table 0
  03  rtm_protocol 3
  fd  rtm_scope 253
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 01 00  RTA_DST
    0a 03 00 00  10.3.0.0
  08 00 04 00  RTA_OIF
    02 00 00 00  2
  08 00 0f 00  RTA_TABLE
    e8 03 00 00  1000
`;

  test('sends a table number that does not fit the header', () => {
    const route = { dst: parseCidr('10.3.0.0/16'), oif: 2, table: 1000, scope: RT_SCOPE_LINK };
    expect(sentBy(socket => addRoute(socket, route))).toEqual(bytesOf(TABLE));
  });

  // ip route add 10.9.0.1 dev v0 scope link src 10.88.0.2
  const SOURCE = `
  34 00 00 00  nlmsg_len 52
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  rtm_family 2
  20  rtm_dst_len 32
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  fd  rtm_scope 253
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 01 00  RTA_DST
    0a 09 00 01  10.9.0.1
  08 00 04 00  RTA_OIF
    03 00 00 00  3
  08 00 07 00  RTA_PREFSRC
    0a 58 00 02  10.88.0.2
`;

  test('sends a source address', () => {
    const source = parseIp('10.88.0.2');
    const route = { dst: parseCidr('10.9.0.1/32'), oif: 3, source, scope: RT_SCOPE_LINK };
    expect(sentBy(socket => addRoute(socket, route))).toEqual(bytesOf(SOURCE));
  });

  // ip route add 10.9.0.0/16 nexthop via 10.88.0.1 dev v0 nexthop via 10.88.0.3 dev v0
  const WAYS = `
  48 00 00 00  nlmsg_len 72
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  rtm_family 2
  10  rtm_dst_len 16
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  00  rtm_scope 0
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 01 00  RTA_DST
    0a 09 00 00  10.9.0.0
  24 00 09 00  RTA_MULTIPATH {
    10 00  rtnh_len 16
    00  rtnh_flags 0
    00  rtnh_hops 0
    03 00 00 00  rtnh_ifindex 3
      08 00 05 00  RTA_GATEWAY
        0a 58 00 01  10.88.0.1
    10 00  rtnh_len 16
    00  rtnh_flags 0
    00  rtnh_hops 0
    03 00 00 00  rtnh_ifindex 3
      08 00 05 00  RTA_GATEWAY
        0a 58 00 03  10.88.0.3
  }
`;

  test('sends several next hops', () => {
    const ways = ['10.88.0.1', '10.88.0.3'].map(gateway => ({ gateway: parseIp(gateway), oif: 3 }));
    const route = { dst: parseCidr('10.9.0.0/16'), oif: 3, ways };
    expect(sentBy(socket => addRoute(socket, route))).toEqual(bytesOf(WAYS));
  });
});

describe('prependRoute(), replaceRoute() and removeRoute()', () => {
  // ip route prepend 10.88.0.9 dev v0 scope host
  const PREPEND = `
  2c 00 00 00  nlmsg_len 44
  18 00  nlmsg_type RTM_NEWROUTE
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  rtm_family 2
  20  rtm_dst_len 32
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  fe  rtm_scope 254
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 01 00  RTA_DST
    0a 58 00 09  10.88.0.9
  08 00 04 00  RTA_OIF
    03 00 00 00  3
`;

  test('differ in flags, and removal also in protocol and type', () => {
    const route = { dst: parseCidr('10.88.0.9/32'), oif: 3, scope: RT_SCOPE_HOST };
    expect(sentBy(socket => prependRoute(socket, route))).toEqual(bytesOf(PREPEND));
    // ip route replace …; ip route del …, which sends neither protocol nor type
    const replaced = PREPEND.replace('05 04', '05 05');
    expect(sentBy(socket => replaceRoute(socket, route))).toEqual(bytesOf(replaced));
    const removed = PREPEND.replace('18 00', '19 00')
      .replace('05 04', '05 00')
      .replace('03  rtm_p', '00  rtm_p');
    expect(sentBy(socket => removeRoute(socket, route))).toEqual(bytesOf(removed));
  });
});

// The answers of Linux 6.18 to: ip route show; ip -6 route show
const CONNECTED = `
  3c 00 00 00  nlmsg_len 60
  18 00  nlmsg_type RTM_NEWROUTE
  22 00  nlmsg_flags MULTI|FILTERED
  d2 3b 01 6b  nlmsg_seq
  39 2b 00 00  nlmsg_pid
  02  rtm_family 2
  18  rtm_dst_len 24
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  02  rtm_protocol 2
  fd  rtm_scope 253
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 0f 00  RTA_TABLE
    fe 00 00 00  254
  08 00 01 00  RTA_DST
    0a 01 00 00  10.1.0.0
  08 00 07 00  RTA_PREFSRC
    0a 01 00 01  10.1.0.1
  08 00 04 00  RTA_OIF
    02 00 00 00  2
`;
const GATEWAY = `
  44 00 00 00  nlmsg_len 68
  18 00  nlmsg_type RTM_NEWROUTE
  22 00  nlmsg_flags MULTI|FILTERED
  d2 3b 01 6b  nlmsg_seq
  39 2b 00 00  nlmsg_pid
  02  rtm_family 2
  10  rtm_dst_len 16
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  00  rtm_scope 0
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 0f 00  RTA_TABLE
    fe 00 00 00  254
  08 00 01 00  RTA_DST
    0a 02 00 00  10.2.0.0
  08 00 06 00  RTA_PRIORITY
    07 00 00 00  7
  08 00 05 00  RTA_GATEWAY
    0a 01 00 02  10.1.0.2
  08 00 04 00  RTA_OIF
    02 00 00 00  2
`;
const DEFAULT_V6 = `
  80 00 00 00  nlmsg_len 128
  18 00  nlmsg_type RTM_NEWROUTE
  22 00  nlmsg_flags MULTI|FILTERED
  d2 3b 01 6b  nlmsg_seq
  3d 2b 00 00  nlmsg_pid
  0a  rtm_family 10
  00  rtm_dst_len 0
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  00  rtm_scope 0
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 0f 00  RTA_TABLE
    fe 00 00 00  254
  0c 00 08 00  RTA_METRICS {
    08 00 02 00  RTAX_MTU
      00 05 00 00  1280
  }
  08 00 06 00  RTA_PRIORITY
    00 04 00 00  1024
  14 00 05 00  RTA_GATEWAY
    fd 00 00 01 00 00 00 00 00 00 00 00 00 00 00 02  fd00:1::2
  08 00 04 00  RTA_OIF
    02 00 00 00  2
  24 00 0c 00  RTA_CACHEINFO
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
  05 00 14 00  RTA_PREF
    00  0
  00 00 00  padding
`;

const WAYS_FOUND = `
  50 00 00 00  nlmsg_len 80
  18 00  nlmsg_type RTM_NEWROUTE
  22 00  nlmsg_flags MULTI|FILTERED
  98 50 01 6b  nlmsg_seq
  98 2c 00 00  nlmsg_pid
  02  rtm_family 2
  10  rtm_dst_len 16
  00  rtm_src_len 0
  00  rtm_tos 0
  fe  rtm_table 254
  03  rtm_protocol 3
  00  rtm_scope 0
  01  rtm_type 1
  00 00 00 00  rtm_flags 0
  08 00 0f 00  RTA_TABLE
    fe 00 00 00  254
  08 00 01 00  RTA_DST
    0a 09 00 00  10.9.0.0
  24 00 09 00  RTA_MULTIPATH {
    10 00  rtnh_len 16
    00  rtnh_flags 0
    00  rtnh_hops 0
    03 00 00 00  rtnh_ifindex 3
      08 00 05 00  RTA_GATEWAY
        0a 58 00 01  10.88.0.1
    10 00  rtnh_len 16
    00  rtnh_flags 0
    00  rtnh_hops 0
    03 00 00 00  rtnh_ifindex 3
      08 00 05 00  RTA_GATEWAY
        0a 58 00 03  10.88.0.3
  }
`;

test('listRoutes() reads several next hops, and refuses truncated ones', () => {
  const [route] = answering(() => [bodyOf(WAYS_FOUND)], listRoutes);
  const ways = ['10.88.0.1', '10.88.0.3'].map(gateway => ({ gateway: parseIp(gateway), oif: 3 }));
  expect(route).toMatchObject({ dst: parseCidr('10.9.0.0/16'), oif: 3, ways });
  const torn = bodyOf(WAYS_FOUND.replace('10 00  rtnh_len 16', '30 00  rtnh_len 48'));
  expect(() => answering(() => [torn], listRoutes)).toThrow('next hop at byte 0 claims 48 of 32 bytes');
});

test('the limits of a route come back as they were sent', () => {
  const limits = { mtu: 1400, advmss: 1200 };
  const route = { dst: parseCidr('10.9.0.0/16'), oif: 3, ...limits };
  const [sent] = decodeMessages(sentBy(socket => addRoute(socket, route)));
  expect(decodeRoute(sent?.body ?? new Uint8Array())).toMatchObject(limits);
});

test('listRoutes() reads both families', () => {
  const bodies = [CONNECTED, GATEWAY, DEFAULT_V6].map(bodyOf);
  const routes = answering(() => bodies, listRoutes);
  expect(routes).toMatchObject([
    { dst: parseCidr('10.1.0.0/24'), oif: 2, source: parseIp('10.1.0.1'), table: 254, scope: RT_SCOPE_LINK },
    { dst: parseCidr('10.2.0.0/16'), gateway: parseIp('10.1.0.2'), oif: 2, table: 254, priority: 7 },
    { dst: parseCidr('::/0'), gateway: parseIp('fd00:1::2'), oif: 2, priority: 1024, mtu: 1280 },
  ]);
});

test('listRoutes() leaves out those of multicast daemons and of MPLS', () => {
  const [ipmr, mpls] = [128, 28].map(family => bodyOf(GATEWAY).with(0, family));
  const routes = answering(() => [ipmr, mpls, bodyOf(CONNECTED)] as Uint8Array[], listRoutes);
  expect(routes.map(({ dst }) => dst)).toEqual([parseCidr('10.1.0.0/24')]);
});
