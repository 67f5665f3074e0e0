// Are VLANs of bridge ports set, and read in the kernel's own description, byte for byte?
import { describe, expect, test } from 'bun:test';
import {
  addPortVlans,
  bridgeVlanInfo,
  listBridgePorts,
  removePortVlans,
  setVlanFiltering,
} from '../../../src/netlink/rtnl/bridge-vlan.ts';
import { createLink } from '../../../src/netlink/rtnl/link.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

// What we send was compared with what `bridge` sends (strace -e trace=sendmsg -e write=3): the same but for
// NLA_F_NESTED, which it leaves out.

const plain = { pvid: false, untagged: false };

test('struct bridge_vlan_info has 4 bytes', () => {
  expect(bridgeVlanInfo.size).toBe(4);
});

describe('addPortVlans()', () => {
  // bridge vlan add dev v0 vid 100 pvid untagged master
  test('sends one VLAN', () => {
    const SET = `
  34 00 00 00  nlmsg_len 52
  13 00  nlmsg_type RTM_SETLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  ifi_family AF_BRIDGE
  00  padding
  00 00  ifi_type 0
  04 00 00 00  ifi_index 4
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  14 00 1a 80  IFLA_AF_SPEC (NLA_F_NESTED) {
    06 00 00 00  IFLA_BRIDGE_FLAGS
      01 00  BRIDGE_FLAGS_MASTER
    00 00  padding
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      06 00  flags PVID|UNTAGGED
      64 00  vid 100
  }
`;
    const vlan = { first: 100, last: 100, pvid: true, untagged: true };
    expect(sentBy(socket => addPortVlans(socket, 4, [vlan]))).toEqual(bytesOf(SET));
  });

  // bridge vlan add dev v0 vid 200-210 master
  test('sends a range', () => {
    const SET = `
  3c 00 00 00  nlmsg_len 60
  13 00  nlmsg_type RTM_SETLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  ifi_family AF_BRIDGE
  00  padding
  00 00  ifi_type 0
  04 00 00 00  ifi_index 4
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  1c 00 1a 80  IFLA_AF_SPEC (NLA_F_NESTED) {
    06 00 00 00  IFLA_BRIDGE_FLAGS
      01 00  BRIDGE_FLAGS_MASTER
    00 00  padding
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      08 00  flags RANGE_BEGIN
      c8 00  vid 200
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      10 00  flags RANGE_END
      d2 00  vid 210
  }
`;
    expect(sentBy(socket => addPortVlans(socket, 4, [{ first: 200, last: 210, ...plain }]))).toEqual(
      bytesOf(SET),
    );
  });

  test('sends nothing without VLANs', () => {
    expect(() => sentBy(socket => addPortVlans(socket, 4, []))).toThrow('nothing was');
  });
});

// bridge vlan del dev v0 vid 1-4094 master
test('removePortVlans() sends a range', () => {
  const DELETE = `
  3c 00 00 00  nlmsg_len 60
  11 00  nlmsg_type RTM_DELLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  ifi_family AF_BRIDGE
  00  padding
  00 00  ifi_type 0
  04 00 00 00  ifi_index 4
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  1c 00 1a 80  IFLA_AF_SPEC (NLA_F_NESTED) {
    06 00 00 00  IFLA_BRIDGE_FLAGS
      01 00  BRIDGE_FLAGS_MASTER
    00 00  padding
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      08 00  flags RANGE_BEGIN
      01 00  vid 1
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      10 00  flags RANGE_END
      fe 0f  vid 4094
  }
`;
  expect(sentBy(socket => removePortVlans(socket, 4, 1, 4094))).toEqual(bytesOf(DELETE));
});

describe('a bridge with VLAN filtering', () => {
  // ip link add br0 type bridge vlan_filtering 1
  const CREATE = `
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
  08 00 03 00  IFLA_IFNAME
    62 72 30 00  "br0"
  1c 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0b 00 01 00  IFLA_INFO_KIND
      62 72 69 64 67 65 00  "bridge"
    00  padding
    0c 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      05 00 07 00  IFLA_BR_VLAN_FILTERING
        01  1
      00 00 00  padding
    }
  }
`;

  test('is created by createLink()', () => {
    expect(
      sentBy(socket => createLink(socket, { name: 'br0', kind: 'bridge', vlanFiltering: true })),
    ).toEqual(bytesOf(CREATE));
  });

  // ip link set br0 type bridge vlan_filtering 1
  const CHANGE = `
  3c 00 00 00  nlmsg_len 60
  10 00  nlmsg_type RTM_NEWLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  07 00 00 00  ifi_index 7
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  1c 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0b 00 01 00  IFLA_INFO_KIND
      62 72 69 64 67 65 00  "bridge"
    00  padding
    0c 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      05 00 07 00  IFLA_BR_VLAN_FILTERING
        01  1
      00 00 00  padding
    }
  }
`;

  test('is made from a plain one by setVlanFiltering()', () => {
    expect(sentBy(socket => setVlanFiltering(socket, 7, true))).toEqual(bytesOf(CHANGE));
  });
});

describe('listBridgePorts()', () => {
  // bridge -compressvlans vlan show
  const ASKED = `
  28 00 00 00  nlmsg_len 40
  12 00  nlmsg_type RTM_GETLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  ifi_family AF_BRIDGE
  00  padding
  00 00  ifi_type 0
  00 00 00 00  ifi_index 0
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  08 00 1d 00  IFLA_EXT_MASK
    04 00 00 00  RTEXT_FILTER_BRVLAN_COMPRESSED
`;

  // Put together from linux/if_bridge.h: VLAN 100 as pvid, 200 to 210, and what a tunnel would add.
  const SHOWN = `
  54 00 00 00  nlmsg_len 84
  10 00  nlmsg_type RTM_NEWLINK
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  ifi_family AF_BRIDGE
  00  padding
  01 00  ifi_type 1
  04 00 00 00  ifi_index 4
  43 10 01 00  ifi_flags 0x11043
  00 00 00 00  ifi_change 0
  08 00 0a 00  IFLA_MASTER
    03 00 00 00  3
  2c 00 1a 00  IFLA_AF_SPEC {
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      06 00  flags PVID|UNTAGGED
      64 00  vid 100
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      08 00  flags RANGE_BEGIN
      c8 00  vid 200
    08 00 02 00  IFLA_BRIDGE_VLAN_INFO
      10 00  flags RANGE_END
      d2 00  vid 210
    10 00 03 80  IFLA_BRIDGE_VLAN_TUNNEL_INFO (NLA_F_NESTED) {
      08 00 01 00  IFLA_BRIDGE_VLAN_TUNNEL_ID
        e8 03 00 00  1000
      04 00 00 00  padding of the capture
    }
  }
`;

  test('requests ranges', () => {
    expect(sentBy(socket => listBridgePorts(socket, 3))).toEqual(bytesOf(ASKED));
  });

  test('skips the bridge itself', () => {
    const itself = SHOWN.replace('04 00 00 00  ifi_index 4', '03 00 00 00  ifi_index 3');
    expect(
      answering(
        () => [bodyOf(itself)],
        socket => listBridgePorts(socket, 3),
      ),
    ).toEqual([]);
  });

  test('reads ranges, and skips entries without VLANs', () => {
    const vlans = [
      { first: 100, last: 100, pvid: true, untagged: true },
      { first: 200, last: 210, ...plain },
    ];
    const of = (bridge: number) =>
      answering(
        () => [bodyOf(SHOWN)],
        socket => listBridgePorts(socket, bridge),
      );
    expect(of(3)).toEqual([{ index: 4, vlans }]);
    expect(of(2)).toEqual([]);
  });
});
