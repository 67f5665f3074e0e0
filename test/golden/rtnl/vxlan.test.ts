// Are tunnels between nodes described to the kernel byte for byte: the device, its forwarding, neighbours and routes?

import { describe, expect, test } from 'bun:test';
import { parseCidr, parseIp, renderIp } from '../../../src/net/ip.ts';
import type { Request } from '../../../src/netlink/codec.ts';
import { createLink, findLink, linkMessage, vxlanOf } from '../../../src/netlink/rtnl/link.ts';
import {
  listForwarding,
  removeForwardingRequest,
  removeNeighbourRequest,
  setForwardingRequest,
  setNeighbourRequest,
} from '../../../src/netlink/rtnl/neighbour.ts';
import { listOriginRoutes, originRouteRequest } from '../../../src/netlink/rtnl/route.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

const MAC = '0a:c7:c0:00:02:03';

function sent(request: Request): Uint8Array {
  return sentBy(socket => socket.request(request));
}

describe('a VXLAN device', () => {
  // ip link add cat-vx up mtu 1450 address 0a:c7:c0:00:02:01 type vxlan id 6700 local 192.0.2.1 dstport 4789 nolearning
  // `ip` sends the MTU and the address before the name.
  const V4 = `
  74 00 00 00  nlmsg_len 116
  10 00  nlmsg_type RTM_NEWLINK
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00 00 00 00  family, pad, type
  00 00 00 00  ifi_index 0
  01 00 00 00  ifi_flags IFF_UP
  01 00 00 00  ifi_change IFF_UP
  0b 00 03 00  IFLA_IFNAME
    63 61 74 2d 76 78 00  "cat-vx"
    00  padding
  08 00 04 00  IFLA_MTU
    aa 05 00 00  1450
  0a 00 01 00  IFLA_ADDRESS
    0a c7 c0 00 02 01  0a:c7:c0:00:02:01
    00 00  padding
  34 00 12 80  IFLA_LINKINFO, nested
    0a 00 01 00  IFLA_INFO_KIND
      76 78 6c 61 6e 00  "vxlan"
      00 00  padding
    24 00 02 80  IFLA_INFO_DATA, nested
      08 00 01 00  IFLA_VXLAN_ID
        2c 1a 00 00  6700
      08 00 04 00  IFLA_VXLAN_LOCAL
        c0 00 02 01  192.0.2.1
      05 00 07 00  IFLA_VXLAN_LEARNING
        00  no
        00 00 00  padding
      06 00 0f 00  IFLA_VXLAN_PORT
        12 b5  4789, big-endian
        00 00  padding
`;

  test('is created with what its packets carry, and without learning', () => {
    const vxlan = { id: 6700, local: parseIp('192.0.2.1'), port: 4789 };
    const link = {
      name: 'cat-vx',
      kind: 'vxlan',
      up: true,
      mtu: 1450,
      mac: '0a:c7:c0:00:02:01',
      vxlan,
    } as const;
    expect(sentBy(socket => createLink(socket, link))).toEqual(bytesOf(V4));
  });

  test('over IPv6 has its address in another attribute, and is read back', () => {
    const vxlan = { id: 6700, local: parseIp('fd00::1'), port: 4790 };
    const body = linkMessage.encode(
      { index: 4 },
      {
        ifname: 'x',
        linkinfo: { kind: 'vxlan', data: { id: 6700, local6: vxlan.local, learning: 0, port: 4790 } },
      },
    );
    const link = answering(
      () => [body],
      socket => findLink(socket, 'x'),
    );
    expect(link && vxlanOf(link)).toEqual({ ...vxlan, learning: false });
  });
});

describe('forwarding of a tunnel', () => {
  // bridge fdb replace 0a:c7:c0:00:02:03 dev cat-vx dst 192.0.2.3
  const REPLACE = `
  30 00 00 00  nlmsg_len 48
  1c 00  nlmsg_type RTM_NEWNEIGH
  05 05  nlmsg_flags REQUEST|ACK|REPLACE|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  family AF_BRIDGE
  00 00 00  pad
  04 00 00 00  ndm_ifindex 4
  c0 00  ndm_state NOARP|PERMANENT
  02  ndm_flags NTF_SELF
  00  ndm_type
  0a 00 02 00  NDA_LLADDR
    0a c7 c0 00 02 03  0a:c7:c0:00:02:03
    00 00  padding
  08 00 01 00  NDA_DST
    c0 00 02 03  192.0.2.3
`;

  test('is set, read and removed', () => {
    const entry = { mac: MAC, to: parseIp('192.0.2.3') };
    expect(sent(setForwardingRequest(4, entry))).toEqual(bytesOf(REPLACE));
    const found = answering(
      () => [bodyOf(REPLACE)],
      socket => listForwarding(socket, 4),
    );
    expect(found).toEqual([entry]);
    const removal = REPLACE.replace(
      '1c 00  nlmsg_type RTM_NEWNEIGH',
      '1d 00  nlmsg_type RTM_DELNEIGH',
    ).replace('05 05  ', '05 00  ');
    expect(sent(removeForwardingRequest(4, entry))).toEqual(bytesOf(removal));
  });
});

describe('neighbours', () => {
  // ip neigh replace 10.244.3.0 lladdr 0a:c7:c0:00:02:03 dev cat-vx nud permanent
  const REPLACE = `
  30 00 00 00  nlmsg_len 48
  1c 00  nlmsg_type RTM_NEWNEIGH
  05 05  nlmsg_flags REQUEST|ACK|REPLACE|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  family AF_INET
  00 00 00  pad
  04 00 00 00  ndm_ifindex 4
  80 00  ndm_state PERMANENT
  00  ndm_flags
  00  ndm_type
  08 00 01 00  NDA_DST
    0a f4 03 00  10.244.3.0
  0a 00 02 00  NDA_LLADDR
    0a c7 c0 00 02 03  0a:c7:c0:00:02:03
    00 00  padding
`;
  // ip neigh del 10.244.3.0 dev cat-vx, which also sends a state that the kernel does not read
  const REMOVE = `
  24 00 00 00  nlmsg_len 36
  1d 00  nlmsg_type RTM_DELNEIGH
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  family AF_INET
  00 00 00  pad
  04 00 00 00  ndm_ifindex 4
  00 00  ndm_state
  00  ndm_flags
  00  ndm_type
  08 00 01 00  NDA_DST
    0a f4 03 00  10.244.3.0
`;

  test('are set and removed', () => {
    expect(sent(setNeighbourRequest(4, parseIp('10.244.3.0'), MAC))).toEqual(bytesOf(REPLACE));
    expect(sent(removeNeighbourRequest(4, parseIp('10.244.3.0')))).toEqual(bytesOf(REMOVE));
  });
});

describe('routes of one origin', () => {
  // ip route add 10.244.3.0/24 via 10.244.3.0 dev cat-vx onlink proto 67 metric 6700
  const ONLINK = `
  3c 00 00 00  nlmsg_len 60
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  family AF_INET
  18  dst_len 24
  00  src_len 0
  00  tos 0
  fe  table 254
  43  protocol 67
  00  scope universe
  01  type RTN_UNICAST
  04 00 00 00  flags RTNH_F_ONLINK
  08 00 01 00  RTA_DST
    0a f4 03 00  10.244.3.0
  08 00 05 00  RTA_GATEWAY
    0a f4 03 00  10.244.3.0
  08 00 04 00  RTA_OIF
    04 00 00 00  4
  08 00 06 00  RTA_PRIORITY
    2c 1a 00 00  6700
`;
  // ip -6 route add unreachable fd00:244::/64 table 6700 proto 67
  const UNREACHABLE = `
  38 00 00 00  nlmsg_len 56
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  0a  family AF_INET6
  40  dst_len 64
  00  src_len 0
  00  tos 0
  00  table 0
  43  protocol 67
  00  scope universe
  07  type RTN_UNREACHABLE
  00 00 00 00  flags
  14 00 01 00  RTA_DST
    fd 00 02 44 00 00 00 00 00 00 00 00 00 00 00 00  fd00:244::
  08 00 0f 00  RTA_TABLE
    2c 1a 00 00  6700
`;
  const origin = { protocol: 67, priority: 6700, table: 254 };

  test('lead to a gateway that no other route covers', () => {
    const via = { oif: 4, gateway: parseIp('10.244.3.0'), onlink: true };
    const route = { ...origin, dst: parseCidr('10.244.3.0/24'), via };
    expect(sent(originRouteRequest(route))).toEqual(bytesOf(ONLINK));
    const found = answering(
      () => [bodyOf(ONLINK)],
      socket => listOriginRoutes(socket, 4, 67),
    );
    expect(found).toEqual([route]);
    expect(renderIp(found[0]?.dst.ip ?? parseIp('::'))).toBe('10.244.3.0');
  });

  test('refuse packets, in a table of their own', () => {
    const route = { protocol: 67, priority: 0, table: 6700, dst: parseCidr('fd00:244::/64'), via: undefined };
    expect(sent(originRouteRequest(route))).toEqual(bytesOf(UNREACHABLE));
  });

  test('of other origins are not listed', () => {
    const found = answering(
      () => [bodyOf(ONLINK)],
      socket => listOriginRoutes(socket, 4, 68),
    );
    expect(found).toEqual([]);
  });
});
