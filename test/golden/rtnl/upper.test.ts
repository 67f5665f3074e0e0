// Are devices on top of others described byte for byte: macvlan, ipvlan, VLAN?
import { describe, expect, test } from 'bun:test';
import { createUpper, setUpper } from '../../../src/netlink/rtnl/kinds.ts';
import {
  IPVLAN_FLAGS,
  IPVLAN_MODES,
  linkMessage,
  MACVLAN_MODES,
  VLAN_PROTOCOLS,
} from '../../../src/netlink/rtnl/link.ts';
import { bodyOf, bytesOf, sentBy } from './captured.ts';

// `ip` sends the same but for the order of attributes, NLA_F_NESTED, the zero at the end of the kind, and a process id in place of
// the namespace's descriptor (strace -e trace=sendmsg -e write=3).

/** What every message begins with, up to the index. */
const headerOf = (type: string, flags: string, length: string) => `
  ${length} 00 00 00  nlmsg_len
  ${type} 00  nlmsg_type
  ${flags}  nlmsg_flags
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
`;

const NEW = `
  00 00 00 00  ifi_index 0
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  09 00 03 00  IFLA_IFNAME
    65 74 68 30 00  "eth0"
  00 00 00  padding
  08 00 05 00  IFLA_LINK
    03 00 00 00  3
`;

// ip link add link v0 name eth0 mtu 1400 address c2:11:22:33:44:55 netns box type macvlan mode bridge bcqueuelen 2000
const MACVLAN = `${headerOf('10', '05 06', '74')}${NEW}
  08 00 1c 00  IFLA_NET_NS_FD
    04 00 00 00  4
  0a 00 01 00  IFLA_ADDRESS
    c2 11 22 33 44 55
  00 00  padding
  08 00 04 00  IFLA_MTU
    78 05 00 00  1400
  24 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0c 00 01 00  IFLA_INFO_KIND
      6d 61 63 76 6c 61 6e 00  "macvlan"
    14 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      08 00 01 00  IFLA_MACVLAN_MODE
        04 00 00 00  MACVLAN_MODE_BRIDGE
      08 00 07 00  IFLA_MACVLAN_BC_QUEUE_LEN
        d0 07 00 00  2000
    }
  }
`;
// What `ip` sent.
const MACVLAN_THEIRS = `
  68 00 00 00 10 00 05 06 81 76 03 6b 00 00 00 00
  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
  08 00 04 00 78 05 00 00 08 00 13 00 66 6b 00 00
  08 00 05 00 03 00 00 00 09 00 03 00 65 74 68 30
  00 00 00 00 24 00 12 00 0b 00 01 00 6d 61 63 76
  6c 61 6e 00 14 00 02 00 08 00 07 00 d0 07 00 00
  08 00 01 00 04 00 00 00
`;

// ip link add link v0 name eth0 netns box type ipvlan mode l3 private
const IPVLAN = `${headerOf('10', '05 06', '60')}${NEW}
  08 00 1c 00  IFLA_NET_NS_FD
    04 00 00 00  4
  24 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0b 00 01 00  IFLA_INFO_KIND
      69 70 76 6c 61 6e 00  "ipvlan"
    00  padding
    14 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      06 00 01 00  IFLA_IPVLAN_MODE
        01 00  IPVLAN_MODE_L3
      00 00  padding
      06 00 02 00  IFLA_IPVLAN_FLAGS
        01 00  IPVLAN_F_PRIVATE
      00 00  padding
    }
  }
`;
// What `ip` sent.
const IPVLAN_THEIRS = `
  68 00 00 00 10 00 05 06 81 76 03 6b 00 00 00 00
  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
  08 00 04 00 78 05 00 00 08 00 13 00 66 6b 00 00
  08 00 05 00 03 00 00 00 09 00 03 00 65 74 68 30
  00 00 00 00 24 00 12 00 0a 00 01 00 69 70 76 6c
  61 6e 00 00 14 00 02 00 06 00 01 00 01 00 00 00
  06 00 02 00 01 00 00 00
`;

// ip link add link v0 name eth0 type vlan id 100 protocol 802.1ad ingress-qos-map 6:2 egress-qos-map 0:5
const VLAN = `${headerOf('10', '05 06', '78')}${NEW}
  44 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    09 00 01 00  IFLA_INFO_KIND
      76 6c 61 6e 00  "vlan"
    00 00 00  padding
    34 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      06 00 01 00  IFLA_VLAN_ID
        64 00  100
      00 00  padding
      06 00 05 00  IFLA_VLAN_PROTOCOL
        88 a8  ETH_P_8021AD
      00 00  padding
      10 00 03 80  IFLA_VLAN_EGRESS_QOS (NLA_F_NESTED) {
        0c 00 01 00  IFLA_VLAN_QOS_MAPPING
          00 00 00 00  from 0
          05 00 00 00  to 5
      }
      10 00 04 80  IFLA_VLAN_INGRESS_QOS (NLA_F_NESTED) {
        0c 00 01 00  IFLA_VLAN_QOS_MAPPING
          06 00 00 00  from 6
          02 00 00 00  to 2
      }
    }
  }
`;
// What `ip` sent.
const VLAN_THEIRS = `
  84 00 00 00 10 00 05 06 81 76 03 6b 00 00 00 00
  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
  08 00 04 00 78 05 00 00 08 00 13 00 66 6b 00 00
  08 00 05 00 03 00 00 00 09 00 03 00 65 74 68 30
  00 00 00 00 40 00 12 00 08 00 01 00 76 6c 61 6e
  34 00 02 00 06 00 01 00 64 00 00 00 06 00 05 00
  88 a8 00 00 10 00 04 00 0c 00 01 00 06 00 00 00
  02 00 00 00 10 00 03 00 0c 00 01 00 00 00 00 00
  05 00 00 00
`;

// ip link set dev eth0 type ipvlan mode l2 bridge
const CHANGE = `${headerOf('10', '05 00', '44')}
  07 00 00 00  ifi_index 7
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  24 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0b 00 01 00  IFLA_INFO_KIND
      69 70 76 6c 61 6e 00  "ipvlan"
    00  padding
    14 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      06 00 01 00  IFLA_IPVLAN_MODE
        00 00  IPVLAN_MODE_L2
      00 00  padding
      06 00 02 00  IFLA_IPVLAN_FLAGS
        00 00  none: bridge
      00 00  padding
    }
  }
`;

const EGRESS = [{ from: 0, to: 5 }];
const INGRESS = [{ from: 6, to: 2 }];

describe('createUpper() describes', () => {
  test('a macvlan in another namespace', () => {
    const macvlan = {
      name: 'eth0',
      kind: 'macvlan' as const,
      lower: 3,
      netnsFd: 4,
      mac: 'c2:11:22:33:44:55',
      mtu: 1400,
      data: { mode: MACVLAN_MODES.bridge, queueLength: 2000 },
    };
    expect(sentBy(socket => createUpper(socket, macvlan))).toEqual(bytesOf(MACVLAN));
  });

  test('an ipvlan', () => {
    const data = { mode: IPVLAN_MODES.l3, flags: IPVLAN_FLAGS.private };
    const ipvlan = { name: 'eth0', kind: 'ipvlan' as const, lower: 3, netnsFd: 4, data };
    expect(sentBy(socket => createUpper(socket, ipvlan))).toEqual(bytesOf(IPVLAN));
  });

  test('a VLAN with priorities', () => {
    const data = { id: 100, protocol: VLAN_PROTOCOLS['802.1ad'], egressQos: EGRESS, ingressQos: INGRESS };
    const vlan = { name: 'eth0', kind: 'vlan' as const, lower: 3, data };
    expect(sentBy(socket => createUpper(socket, vlan))).toEqual(bytesOf(VLAN));
  });
});

test('setUpper() changes attributes of the kind alone', () => {
  const data = { mode: IPVLAN_MODES.l2, flags: IPVLAN_FLAGS.bridge };
  expect(sentBy(socket => setUpper(socket, 7, 'ipvlan', data))).toEqual(bytesOf(CHANGE));
});

describe('linkMessage.decode() reads the same of what we send and what `ip` sends:', () => {
  test.each([
    ['macvlan', MACVLAN, MACVLAN_THEIRS, { mode: 4, queueLength: 2000 }],
    ['ipvlan', IPVLAN, IPVLAN_THEIRS, { mode: 1, flags: 1 }],
    ['vlan', VLAN, VLAN_THEIRS, { id: 100, protocol: 0x88a8, egressQos: EGRESS, ingressQos: INGRESS }],
  ])('%s', (kind, ours, theirs, data) => {
    for (const listing of [ours, theirs]) {
      const { attrs } = linkMessage.decode(bodyOf(listing));
      expect({ ifname: attrs.ifname, link: attrs.link, linkinfo: attrs.linkinfo }).toEqual({
        ifname: 'eth0',
        link: 3,
        linkinfo: { kind, data },
      });
    }
  });
});
