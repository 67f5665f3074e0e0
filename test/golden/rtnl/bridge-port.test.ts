// Are a bridge port's switches set, and read in the kernel's own description of a link, byte for byte?
import { expect, test } from 'bun:test';
import { decodeMessages } from '../../../src/netlink/codec.ts';
import { bridgePortRequest, findLink, linkMessage } from '../../../src/netlink/rtnl/link.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

// bridge link set dev veth0 hairpin on isolated on
// `bridge` sends exactly this (strace -e trace=sendmsg -e write=3), sequence number apart.
const SET = `
  34 00 00 00  nlmsg_len 52
  13 00  nlmsg_type RTM_SETLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  ifi_family 7
  00  padding
  00 00  ifi_type 0
  03 00 00 00  ifi_index 3
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  14 00 0c 80  IFLA_PROTINFO (NLA_F_NESTED) {
    05 00 04 00  IFLA_BRPORT_MODE
      01  1
    00 00 00  padding
    05 00 21 00  IFLA_BRPORT_ISOLATED
      01  1
    00 00 00  padding
  }
`;

test('bridgePortRequest() sends the flags as IFLA_PROTINFO of family AF_BRIDGE', () => {
  expect(sentBy(socket => socket.request(bridgePortRequest(3, { hairpin: true, isolated: true })))).toEqual(
    bytesOf(SET),
  );
  const { header, attrs } = linkMessage.decode(bodyOf(SET));
  expect(header).toMatchObject({ family: 7, index: 3 });
  expect(attrs).toEqual({ protinfo: { hairpin: 1, isolated: 1 } });
});

// The answer of Linux 6.18 to: ip -d link show dev veth0, a port of br0 with its other end in another namespace
const SHOWN = `
  40 07 00 00  nlmsg_len 1856
  10 00  nlmsg_type RTM_NEWLINK
  00 00  nlmsg_flags 0
  d2 3b 01 6b  nlmsg_seq
  29 2b 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  01 00  ifi_type 1
  03 00 00 00  ifi_index 3
  43 10 01 00  ifi_flags 0x11043
  00 00 00 00  ifi_change 0
  0a 00 03 00  IFLA_IFNAME
    76 65 74 68 30 00  "veth0"
  00 00  padding
  08 00 0d 00  IFLA_TXQLEN
    f4 01 00 00  500
  05 00 10 00  IFLA_OPERSTATE
    06  6
  00 00 00  padding
  05 00 11 00  IFLA_LINKMODE
    00  0
  00 00 00  padding
  05 00 43 00  attribute 67, not in our table
    00  0
  00 00 00  padding
  08 00 04 00  IFLA_MTU
    14 05 00 00  1300
  08 00 32 00  IFLA_MIN_MTU
    44 00 00 00  68
  08 00 33 00  IFLA_MAX_MTU
    ff ff 00 00  65535
  08 00 1b 00  IFLA_GROUP
    00 00 00 00  0
  08 00 1e 00  IFLA_PROMISCUITY
    01 00 00 00  1
  08 00 3d 00  IFLA_ALLMULTI
    01 00 00 00  1
  08 00 1f 00  IFLA_NUM_TX_QUEUES
    02 00 00 00  2
  08 00 28 00  IFLA_GSO_MAX_SEGS
    ff ff 00 00  65535
  08 00 29 00  IFLA_GSO_MAX_SIZE
    00 00 01 00  65536
  08 00 3a 00  IFLA_GRO_MAX_SIZE
    00 00 01 00  65536
  08 00 3f 00  IFLA_GSO_IPV4_MAX_SIZE
    00 00 01 00  65536
  08 00 40 00  IFLA_GRO_IPV4_MAX_SIZE
    00 00 01 00  65536
  08 00 3b 00  IFLA_TSO_MAX_SIZE
    f8 ff 07 00  524280
  08 00 3c 00  IFLA_TSO_MAX_SEGS
    ff ff 00 00  65535
  08 00 42 00  attribute 66, not in our table
    00 00 00 00  0
  08 00 20 00  IFLA_NUM_RX_QUEUES
    02 00 00 00  2
  08 00 0a 00  IFLA_MASTER
    02 00 00 00  2
  05 00 21 00  IFLA_CARRIER
    01  1
  00 00 00  padding
  08 00 23 00  IFLA_CARRIER_CHANGES
    02 00 00 00  2
  08 00 2f 00  IFLA_CARRIER_UP_COUNT
    01 00 00 00  1
  08 00 30 00  IFLA_CARRIER_DOWN_COUNT
    01 00 00 00  1
  06 00 44 00  attribute 68, not in our table
    00 00  0
  00 00  padding
  06 00 45 00  attribute 69, not in our table
    00 00  0
  00 00  padding
  05 00 27 00  IFLA_PROTO_DOWN
    00  0
  00 00 00  padding
  0a 00 01 00  IFLA_ADDRESS
    c6 2c 66 3b d5 fa  c6:2c:66:3b:d5:fa
  00 00  padding
  0a 00 02 00  IFLA_BROADCAST
    ff ff ff ff ff ff  ff:ff:ff:ff:ff:ff
  00 00  padding
  cc 00 17 00  IFLA_STATS64
    02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 b4 00 00 00 00 00 00 00 dc 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 32 to 63
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 64 to 95
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 96 to 127
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 128 to 159
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 160 to 191
    00 00 00 00 00 00 00 00  bytes 192 to 199
  64 00 07 00  IFLA_STATS
    02 00 00 00 02 00 00 00 b4 00 00 00 dc 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 32 to 63
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 64 to 95
  0c 00 2b 00  IFLA_XDP
    05 00 02 00 00 00 00 00
  6c 01 12 00  IFLA_LINKINFO {
    09 00 01 00  IFLA_INFO_KIND
      76 65 74 68 00  "veth"
    00 00 00  padding
    0b 00 04 00  IFLA_INFO_SLAVE_KIND
      62 72 69 64 67 65 00  "bridge"
    00  padding
    50 01 05 00  IFLA_INFO_SLAVE_DATA {
      05 00 01 00  IFLA_BRPORT_STATE
        03  3
      00 00 00  padding
      06 00 02 00  IFLA_BRPORT_PRIORITY
        20 00  32
      00 00  padding
      08 00 03 00  IFLA_BRPORT_COST
        02 00 00 00  2
      05 00 04 00  IFLA_BRPORT_MODE
        01  1
      00 00 00  padding
      05 00 05 00  IFLA_BRPORT_GUARD
        00  0
      00 00 00  padding
      05 00 06 00  IFLA_BRPORT_PROTECT
        00  0
      00 00 00  padding
      05 00 07 00  IFLA_BRPORT_FAST_LEAVE
        00  0
      00 00 00  padding
      05 00 1c 00  attribute 28, not in our table
        00  0
      00 00 00  padding
      05 00 08 00  IFLA_BRPORT_LEARNING
        01  1
      00 00 00  padding
      05 00 09 00  IFLA_BRPORT_UNICAST_FLOOD
        01  1
      00 00 00  padding
      05 00 1b 00  attribute 27, not in our table
        01  1
      00 00 00  padding
      05 00 1e 00  attribute 30, not in our table
        01  1
      00 00 00  padding
      05 00 0a 00  attribute 10, not in our table
        00  0
      00 00 00  padding
      05 00 0c 00  attribute 12, not in our table
        00  0
      00 00 00  padding
      0c 00 0d 00  attribute 13, not in our table
        80 00 c6 2c 66 3b d5 fa
      0c 00 0e 00  attribute 14, not in our table
        80 00 c6 2c 66 3b d5 fa
      06 00 0f 00  attribute 15, not in our table
        01 80  32769
      00 00  padding
      06 00 10 00  attribute 16, not in our table
        00 00  0
      00 00  padding
      06 00 11 00  attribute 17, not in our table
        01 80  32769
      00 00  padding
      06 00 12 00  attribute 18, not in our table
        01 00  1
      00 00  padding
      05 00 13 00  attribute 19, not in our table
        00  0
      00 00 00  padding
      05 00 14 00  attribute 20, not in our table
        00  0
      00 00 00  padding
      05 00 1d 00  attribute 29, not in our table
        00  0
      00 00 00  padding
      06 00 1f 00  attribute 31, not in our table
        00 00  0
      00 00  padding
      05 00 20 00  attribute 32, not in our table
        00  0
      00 00 00  padding
      05 00 23 00  attribute 35, not in our table
        00  0
      00 00 00  padding
      05 00 24 00  attribute 36, not in our table
        00  0
      00 00 00  padding
      05 00 21 00  IFLA_BRPORT_ISOLATED
        01  1
      00 00 00  padding
      05 00 27 00  attribute 39, not in our table
        00  0
      00 00 00  padding
      05 00 28 00  attribute 40, not in our table
        00  0
      00 00 00  padding
      05 00 2b 00  attribute 43, not in our table
        00  0
      00 00 00  padding
      0c 00 15 00  attribute 21, not in our table
        00 00 00 00 00 00 00 00
      0c 00 16 00  attribute 22, not in our table
        d6 05 00 00 00 00 00 00
      0c 00 17 00  attribute 23, not in our table
        00 00 00 00 00 00 00 00
      05 00 19 00  attribute 25, not in our table
        01  1
      00 00 00  padding
      08 00 25 00  attribute 37, not in our table
        00 02 00 00  512
      08 00 26 00  attribute 38, not in our table
        00 00 00 00  0
      08 00 29 00  attribute 41, not in our table
        01 00 00 00  1
      08 00 2a 00  attribute 42, not in our table
        00 00 00 00  0
    }
  }
  08 00 25 00  IFLA_LINK_NETNSID
    00 00 00 00  0
  08 00 05 00  IFLA_LINK
    02 00 00 00  2
  08 00 06 00  IFLA_QDISC
    74 62 66 00  "tbf"
  30 03 1a 00  IFLA_AF_SPEC
    8c 00 02 00 88 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00 01 00 00 00  bytes 0 to 31
    01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 32 to 63
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 64 to 95
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 27 00 00 e8 03 00 00 00 00 00 00 00 00 00 00  bytes 96 to 127
    00 00 00 00 00 00 00 00 01 00 00 00 a0 02 0a 00 08 00 01 00 00 00 00 80 14 00 05 00 ff ff 00 00  bytes 128 to 159
    ae 93 03 00 98 75 00 00 e8 03 00 00 f4 00 02 00 00 00 00 00 40 00 00 00 14 05 00 00 01 00 00 00  bytes 160 to 191
    01 00 00 00 01 00 00 00 01 00 00 00 ff ff ff ff a0 0f 00 00 e8 03 00 00 00 00 00 00 80 3a 09 00  bytes 192 to 223
    80 51 01 00 03 00 00 00 58 02 00 00 10 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00 01 00 00 00  bytes 224 to 255
    60 ea 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00  bytes 256 to 287
    00 00 00 00 00 00 00 00 10 27 00 00 e8 03 00 00 01 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00  bytes 288 to 319
    00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 80 ee 36 00  bytes 320 to 351
    00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 352 to 383
    00 04 00 00 00 00 00 00 ff ff 00 00 ff ff ff ff 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 384 to 415
    34 01 03 00 26 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 416 to 447
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 448 to 479
    00 00 00 00 01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 4c 00 00 00 00 00 00 00 00 00 00 00  bytes 480 to 511
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 512 to 543
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 544 to 575
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 576 to 607
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 608 to 639
    00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 640 to 671
    00 00 00 00 00 00 00 00 00 00 00 00 4c 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 672 to 703
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 3c 00 06 00 07 00 00 00 00 00 00 00  bytes 704 to 735
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 736 to 767
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 14 00 07 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 768 to 799
    00 00 00 00 05 00 08 00 00 00 00 00  bytes 800 to 811
  24 00 0e 00  IFLA_MAP
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
  04 00 3e 80  attribute 62, not in our table (NLA_F_NESTED)
  04 00 41 80  attribute 65, not in our table (NLA_F_NESTED)
`;

test.each([
  [
    { hairpin: true, isolated: false },
    { hairpin: 1, isolated: 0 },
  ],
  [{ isolated: true }, { isolated: 1 }],
])('bridgePortRequest() sends %j alone', (port, protinfo) => {
  const [sent] = decodeMessages(sentBy(socket => socket.request(bridgePortRequest(3, port))));
  expect(linkMessage.decode(sent?.body ?? new Uint8Array()).attrs).toEqual({ protinfo });
});

test('findLink() reads all attributes of a port', () => {
  const link = answering(
    () => [bodyOf(SHOWN)],
    socket => findLink(socket, 'veth0'),
  );
  expect(link).toMatchObject({
    index: 3,
    name: 'veth0',
    kind: 'veth',
    flags: 0x11043,
    mac: 'c6:2c:66:3b:d5:fa',
    mtu: 1300,
    master: 2,
    peer: 2,
  });
  expect(link?.attrs).toMatchObject({
    txqlen: 500,
    qdisc: 'tbf',
    operstate: 6,
    linkNetnsId: 0,
    promiscuity: 1,
    allmulti: 1,
    linkinfo: { portKind: 'bridge', portData: { state: 3, hairpin: 1, isolated: 1, cost: 2, learning: 1 } },
  });
});

test('linkMessage.decode() keeps attributes that are not in the table', () => {
  const { attrs } = linkMessage.decode(bodyOf(SHOWN));
  const stats64 = attrs.unknown?.find(({ type }) => type === 23);
  expect(stats64?.bytes).toHaveLength(200);
});
