// Are addresses described to the kernel, and read from it, byte for byte?
import { describe, expect, test } from 'bun:test';
import { parseCidr, parseIp } from '../../../src/net/ip.ts';
import {
  addAddress,
  addrMessage,
  IFA_F_NODAD,
  IFA_F_PERMANENT,
  ifaddrmsg,
  listAddresses,
  RT_SCOPE_LINK,
  removeAddress,
  restoreAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { NetlinkError } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

test('struct ifaddrmsg has 8 bytes', () => {
  expect(ifaddrmsg.size).toBe(8);
});

describe('addAddress()', () => {
  // ip addr add 10.1.0.1/24 broadcast 10.1.0.255 dev br0
  // `ip` sends the same attributes in another order.
  const V4 = `
  30 00 00 00  nlmsg_len 48
  14 00  nlmsg_type RTM_NEWADDR
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  ifa_family 2
  18  ifa_prefixlen 24
  00  ifa_flags 0
  00  ifa_scope 0
  02 00 00 00  ifa_index 2
  08 00 02 00  IFA_LOCAL
    0a 01 00 01  10.1.0.1
  08 00 01 00  IFA_ADDRESS
    0a 01 00 01  10.1.0.1
  08 00 04 00  IFA_BROADCAST
    0a 01 00 ff  10.1.0.255
`;

  test('sends an IPv4 address with its broadcast address', () => {
    expect(sentBy(socket => addAddress(socket, 2, parseCidr('10.1.0.1/24')))).toEqual(bytesOf(V4));
  });

  // ip -6 addr add fd00:1::1/64 dev br0 nodad
  // `ip` sends exactly this, sequence number apart.
  const V6 = `
  40 00 00 00  nlmsg_len 64
  14 00  nlmsg_type RTM_NEWADDR
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  0a  ifa_family 10
  40  ifa_prefixlen 64
  02  ifa_flags 2
  00  ifa_scope 0
  02 00 00 00  ifa_index 2
  14 00 02 00  IFA_LOCAL
    fd 00 00 01 00 00 00 00 00 00 00 00 00 00 00 01  fd00:1::1
  14 00 01 00  IFA_ADDRESS
    fd 00 00 01 00 00 00 00 00 00 00 00 00 00 00 01  fd00:1::1
`;

  test('sends an IPv6 address that skips duplicate address detection', () => {
    expect(sentBy(socket => addAddress(socket, 2, parseCidr('fd00:1::1/64'), { nodad: true }))).toEqual(
      bytesOf(V6),
    );
  });
});

// ip addr del 10.1.0.1/24 dev br0
const REMOVE = `
  30 00 00 00  nlmsg_len 48
  15 00  nlmsg_type RTM_DELADDR
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  ifa_family 2
  18  ifa_prefixlen 24
  00  ifa_flags 0
  00  ifa_scope 0
  02 00 00 00  ifa_index 2
  08 00 02 00  IFA_LOCAL
    0a 01 00 01  10.1.0.1
  08 00 01 00  IFA_ADDRESS
    0a 01 00 01  10.1.0.1
  08 00 04 00  IFA_BROADCAST
    0a 01 00 ff  10.1.0.255
`;

test.each([
  [Errno.EADDRNOTAVAIL, false],
  [Errno.ENODEV, false],
  [Errno.EPERM, true],
])('removeAddress() that ends with error %d fails: %p', (errno, fails) => {
  const refuse = () => {
    throw new NetlinkError('delete address', errno);
  };
  const remove = () => answering(refuse, socket => removeAddress(socket, 2, parseCidr('10.1.0.1/24')));
  if (fails) expect(remove).toThrow(NetlinkError);
  else expect(remove).not.toThrow();
});

test('removeAddress() names address and prefix', () => {
  expect(sentBy(socket => removeAddress(socket, 2, parseCidr('10.1.0.1/24')))).toEqual(bytesOf(REMOVE));
});

// The answers of Linux 6.18 to: ip addr show dev br0
const SHOWN_V4 = `
  54 00 00 00  nlmsg_len 84
  14 00  nlmsg_type RTM_NEWADDR
  22 00  nlmsg_flags MULTI|FILTERED
  d3 3b 01 6b  nlmsg_seq
  35 2b 00 00  nlmsg_pid
  02  ifa_family 2
  18  ifa_prefixlen 24
  80  ifa_flags 128
  00  ifa_scope 0
  02 00 00 00  ifa_index 2
  08 00 01 00  IFA_ADDRESS
    0a 01 00 01  10.1.0.1
  08 00 02 00  IFA_LOCAL
    0a 01 00 01  10.1.0.1
  08 00 04 00  IFA_BROADCAST
    0a 01 00 ff  10.1.0.255
  08 00 03 00  IFA_LABEL
    62 72 30 00  "br0"
  08 00 08 00  IFA_FLAGS
    80 00 00 00  128
  14 00 06 00  IFA_CACHEINFO
    ff ff ff ff ff ff ff ff ad 93 03 00 ad 93 03 00
`;
const SHOWN_V6 = `
  48 00 00 00  nlmsg_len 72
  14 00  nlmsg_type RTM_NEWADDR
  22 00  nlmsg_flags MULTI|FILTERED
  d3 3b 01 6b  nlmsg_seq
  35 2b 00 00  nlmsg_pid
  0a  ifa_family 10
  40  ifa_prefixlen 64
  82  ifa_flags 130
  00  ifa_scope 0
  02 00 00 00  ifa_index 2
  14 00 01 00  IFA_ADDRESS
    fd 00 00 01 00 00 00 00 00 00 00 00 00 00 00 01  fd00:1::1
  14 00 06 00  IFA_CACHEINFO
    ff ff ff ff ff ff ff ff ae 93 03 00 ae 93 03 00
  08 00 08 00  IFA_FLAGS
    82 00 00 00  130
`;
const SHOWN_LINK_LOCAL = `
  50 00 00 00  nlmsg_len 80
  14 00  nlmsg_type RTM_NEWADDR
  22 00  nlmsg_flags MULTI|FILTERED
  d3 3b 01 6b  nlmsg_seq
  35 2b 00 00  nlmsg_pid
  0a  ifa_family 10
  40  ifa_prefixlen 64
  c0  ifa_flags 192
  fd  ifa_scope 253
  02 00 00 00  ifa_index 2
  14 00 01 00  IFA_ADDRESS
    fe 80 00 00 00 00 00 00 c4 2c 66 ff fe 3b d5 fa  fe80::c42c:66ff:fe3b:d5fa
  14 00 06 00  IFA_CACHEINFO
    ff ff ff ff ff ff ff ff ae 93 03 00 ae 93 03 00
  08 00 08 00  IFA_FLAGS
    c0 00 00 00  192
  05 00 0b 00  IFA_PROTO
    03  3
  00 00 00  padding
`;

test('restoreAddress() sends a listed address unchanged', () => {
  const [first] = answering(
    () => [SHOWN_V4].map(bodyOf),
    socket => listAddresses(socket, 2),
  );
  const { header, attrs } = addrMessage.decode(
    sentBy(socket => first && restoreAddress(socket, first)).subarray(16),
  );
  expect(header).toMatchObject({ family: 2, prefix: 24, scope: 0, index: 2 });
  const address = parseIp('10.1.0.1');
  expect(attrs).toEqual({ local: address, address, broadcast: parseIp('10.1.0.255'), label: 'br0' });
});

test('listAddresses() reads both families, flags and scopes', () => {
  const bodies = [SHOWN_V4, SHOWN_V6, SHOWN_LINK_LOCAL].map(bodyOf);
  const addresses = answering(
    () => bodies,
    socket => listAddresses(socket, 2),
  );
  expect(addresses).toEqual([
    {
      index: 2,
      cidr: parseCidr('10.1.0.1/24'),
      flags: IFA_F_PERMANENT,
      scope: 0,
      broadcast: parseIp('10.1.0.255'),
      label: 'br0',
    },
    { index: 2, cidr: parseCidr('fd00:1::1/64'), flags: IFA_F_PERMANENT | IFA_F_NODAD, scope: 0 },
    {
      index: 2,
      cidr: parseCidr('fe80::c42c:66ff:fe3b:d5fa/64'),
      flags: IFA_F_PERMANENT | 0x40,
      scope: RT_SCOPE_LINK,
      protocol: 3,
    },
  ]);
});
