// Are dummy devices, VRFs, their rule and their refusing routes described to the kernel byte for byte?
import { describe, expect, test } from 'bun:test';
import { setGroupFwdMask } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import { createLink, ifinfomsg, linkMessage } from '../../../src/netlink/rtnl/link.ts';
import {
  addUnreachableDefault,
  listUnreachableDefaults,
  removeUnreachableDefault,
} from '../../../src/netlink/rtnl/route.ts';
import { addL3mdevRule, listRules } from '../../../src/netlink/rtnl/rule.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

// What we send was compared with what `ip` sends (strace -e trace=sendmsg -e write=3): the same but for the order of
// attributes, NLA_F_NESTED, and the zero at the end of kinds, which it leaves out.

describe('createLink()', () => {
  // ip link add dm0 mtu 1400 type dummy
  const DUMMY = `
  40 00 00 00  nlmsg_len 64
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
  08 00 03 00  IFLA_IFNAME
    64 6d 30 00  "dm0"
  08 00 04 00  IFLA_MTU
    78 05 00 00  1400
  10 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0a 00 01 00  IFLA_INFO_KIND
      64 75 6d 6d 79 00  "dummy"
    00 00  padding
  }
`;

  test('sends a dummy', () => {
    const sent = sentBy(socket => createLink(socket, { name: 'dm0', kind: 'dummy', mtu: 1400 }));
    expect(sent).toEqual(bytesOf(DUMMY));
  });

  // ip link add blue type vrf table 300
  const VRF = `
  44 00 00 00  nlmsg_len 68
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
    62 6c 75 65 00  "blue"
    00 00 00  padding
  18 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    08 00 01 00  IFLA_INFO_KIND
      76 72 66 00  "vrf"
    0c 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      08 00 01 00  IFLA_VRF_TABLE
        2c 01 00 00  300
    }
  }
`;

  test('sends a VRF with its table', () => {
    const sent = sentBy(socket => createLink(socket, { name: 'blue', kind: 'vrf', vrfTable: 300 }));
    expect(sent).toEqual(bytesOf(VRF));
    expect(linkMessage.decode(bodyOf(VRF))).toEqual({
      header: ifinfomsg.zero,
      attrs: { ifname: 'blue', linkinfo: { kind: 'vrf', data: { table: 300 } } },
    });
  });
});

describe('addL3mdevRule()', () => {
  // ip rule add l3mdev pref 1000
  const RULE = `
  2c 00 00 00  nlmsg_len 44
  20 00  nlmsg_type RTM_NEWRULE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  family 2
  00  dst_len 0
  00  src_len 0
  00  tos 0
  00  table 0
  00 00  res
  01  action FR_ACT_TO_TBL
  00 00 00 00  flags 0
  05 00 13 00  FRA_L3MDEV
    01  1
    00 00 00  padding
  08 00 06 00  FRA_PRIORITY
    e8 03 00 00  1000
`;

  test('sends the rule, which is recognized again', () => {
    expect(sentBy(socket => addL3mdevRule(socket, 4))).toEqual(bytesOf(RULE));
    const [rule] = answering(() => [bodyOf(RULE)], listRules);
    expect(rule).toMatchObject({ family: 4, priority: 1000, table: 0, isL3mdev: true });
  });

  test('those of multicast routing are other rules', () => {
    const ofMulticast = RULE.replace('02  family 2', '80  family RTNL_FAMILY_IPMR');
    expect(answering(() => [bodyOf(ofMulticast)], listRules)).toEqual([]);
  });
});

describe('addUnreachableDefault()', () => {
  // ip route add unreachable default metric 4278198272 table 300
  const ROUTE = `
  34 00 00 00  nlmsg_len 52
  18 00  nlmsg_type RTM_NEWROUTE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  rtm_family 2
  00  rtm_dst_len 0
  00  rtm_src_len 0
  00  rtm_tos 0
  00  rtm_table 0
  03  rtm_protocol RTPROT_BOOT
  00  rtm_scope 0
  07  rtm_type RTN_UNREACHABLE
  00 00 00 00  rtm_flags 0
  08 00 01 00  RTA_DST
    00 00 00 00  0.0.0.0
  08 00 06 00  RTA_PRIORITY
    00 20 00 ff  4278198272
  08 00 0f 00  RTA_TABLE
    2c 01 00 00  300
`;

  test('sends the route, which is recognized again', () => {
    expect(sentBy(socket => addUnreachableDefault(socket, 4, 300))).toEqual(bytesOf(ROUTE));
    expect(
      answering(
        () => [bodyOf(ROUTE)],
        socket => listUnreachableDefaults(socket, 4),
      ),
    ).toEqual([300]);
  });

  test('its removal sends the same route of any origin', () => {
    const removal = ROUTE.replace('18 00  nlmsg_type RTM_NEWROUTE', '19 00  nlmsg_type RTM_DELROUTE')
      .replace('05 06  nlmsg_flags', '05 00  nlmsg_flags')
      .replace('03  rtm_protocol', '00  rtm_protocol');
    expect(sentBy(socket => removeUnreachableDefault(socket, 4, 300))).toEqual(bytesOf(removal));
  });
});

describe('setGroupFwdMask()', () => {
  // ip link set br0 type bridge group_fwd_mask 8
  const MASK = `
  3c 00 00 00  nlmsg_len 60
  10 00  nlmsg_type RTM_NEWLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  02 00 00 00  ifi_index 2
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  1c 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0b 00 01 00  IFLA_INFO_KIND
      62 72 69 64 67 65 00  "bridge"
    00  padding
    0c 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      06 00 09 00  IFLA_BR_GROUP_FWD_MASK
        08 00  8
      00 00  padding
    }
  }
`;

  test('sends the mask', () => {
    expect(sentBy(socket => setGroupFwdMask(socket, 2, 8))).toEqual(bytesOf(MASK));
  });
});
