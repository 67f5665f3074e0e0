// Are the groups of an interface asked for, and read, byte for byte?
import { expect, test } from 'bun:test';
import { parseIp } from '../../../src/net/ip.ts';
import { listIpv6Groups } from '../../../src/netlink/rtnl/addr.ts';
import { answering, bodyOf } from './captured.ts';

// The answer of Linux 6.18 to RTM_GETMULTICAST for IPv6 and link 2; `ip -6 maddr` reads /proc/net/igmp6 instead.
const group = (index: string, address: string): string => `
  40 00 00 00  nlmsg_len 64
  3a 00  nlmsg_type RTM_GETMULTICAST
  22 00  nlmsg_flags MULTI|FILTERED
  d3 3b 01 6b  nlmsg_seq
  35 2b 00 00  nlmsg_pid
  0a  ifa_family 10
  80  ifa_prefixlen 128
  80  ifa_flags 128
  00  ifa_scope 0
  ${index} 00 00 00  ifa_index
  14 00 07 00  IFA_MULTICAST
    ${address}
  14 00 06 00  IFA_CACHEINFO
    ff ff ff ff ff ff ff ff cf 40 15 00 cf 40 15 00
`;
const SOLICITED_NODE = 'ff 02 00 00 00 00 00 00 00 00 00 01 ff 00 00 01  ff02::1:ff00:1';
const ALL_NODES = 'ff 02 00 00 00 00 00 00 00 00 00 00 00 00 00 01  ff02::1';

test('listIpv6Groups() reads those of the interface, also from kernels that do not filter', () => {
  const bodies = [group('02', SOLICITED_NODE), group('02', ALL_NODES), group('01', ALL_NODES)].map(bodyOf);
  const groups = answering(
    ({ body }) => {
      // 0a: AF_INET6; 02: ifa_index
      expect([...body]).toEqual([0x0a, 0, 0, 0, 2, 0, 0, 0]);
      return bodies;
    },
    socket => listIpv6Groups(socket, 2),
  );
  expect(groups).toEqual([parseIp('ff02::1:ff00:1'), parseIp('ff02::1')]);
});
