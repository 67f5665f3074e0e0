// Are macvtaps described to the kernel, and read from it, byte for byte?
import { expect, test } from 'bun:test';
import { createUpper } from '../../../src/netlink/rtnl/kinds.ts';
import { linkMessage } from '../../../src/netlink/rtnl/link.ts';
import { bodyOf, bytesOf, sentBy } from './captured.ts';

// ip link add link eth1 name tap0 netns c1 type macvtap mode bridge
const MACVTAP = `
  58 00 00 00  nlmsg_len 88
  10 00  nlmsg_type RTM_NEWLINK
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  00 00 00 00  ifi_index 0
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  09 00 03 00  IFLA_IFNAME
    74 61 70 30 00  "tap0"
  00 00 00  padding
  08 00 05 00  IFLA_LINK
    03 00 00 00
  08 00 1c 00  IFLA_NET_NS_FD
    09 00 00 00
  1c 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0c 00 01 00  IFLA_INFO_KIND
      6d 61 63 76 74 61 70 00  "macvtap"
    0c 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      08 00 01 00  IFLA_MACVLAN_MODE
        04 00 00 00  MACVLAN_MODE_BRIDGE
    }
  }
`;

test('createUpper() sends master, namespace and mode', () => {
  const link = { name: 'tap0', kind: 'macvtap', data: { mode: 4 }, lower: 3, netnsFd: 9 } as const;
  expect(sentBy(socket => createUpper(socket, link))).toEqual(bytesOf(MACVTAP));
  expect(linkMessage.decode(bodyOf(MACVTAP)).attrs.linkinfo).toEqual({ kind: 'macvtap', data: { mode: 4 } });
});
