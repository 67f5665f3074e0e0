// Is a veth pair, with its other end in another namespace, described byte for byte?
import { expect, test } from 'bun:test';
import { decodeMessages } from '../../../src/netlink/codec.ts';
import { createLink, ifinfomsg, linkMessage } from '../../../src/netlink/rtnl/link.ts';
import { bodyOf, bytesOf, sentBy } from './captured.ts';

// ip link add veth0 mtu 1400 type veth peer name eth0 netns box
// `ip` sends the same but for the order of attributes, NLA_F_NESTED and the zero at the end of "veth".
const OURS = `
  70 00 00 00  nlmsg_len 112
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
  0a 00 03 00  IFLA_IFNAME
    76 65 74 68 30 00  "veth0"
  00 00  padding
  08 00 04 00  IFLA_MTU
    78 05 00 00  1400
  3c 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    09 00 01 00  IFLA_INFO_KIND
      76 65 74 68 00  "veth"
    00 00 00  padding
    2c 00 02 80  IFLA_INFO_DATA (NLA_F_NESTED) {
      28 00 01 80  VETH_INFO_PEER (NLA_F_NESTED) {
        00  ifi_family 0
        00  padding
        00 00  ifi_type 0
        00 00 00 00  ifi_index 0
        00 00 00 00  ifi_flags 0
        00 00 00 00  ifi_change 0
        09 00 03 00  IFLA_IFNAME
          65 74 68 30 00  "eth0"
        00 00 00  padding
        08 00 1c 00  IFLA_NET_NS_FD
          04 00 00 00  4
      }
    }
  }
`;

// The same, as `ip` sent it (strace -e trace=sendmsg -e write=3).
const THEIRS = `
  6c 00 00 00  nlmsg_len 108
  10 00  nlmsg_type RTM_NEWLINK
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  d2 3b 01 6b  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  00 00 00 00  ifi_index 0
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  08 00 04 00  IFLA_MTU
    78 05 00 00  1400
  0a 00 03 00  IFLA_IFNAME
    76 65 74 68 30 00  "veth0"
  00 00  padding
  38 00 12 00  IFLA_LINKINFO {
    08 00 01 00  IFLA_INFO_KIND
      76 65 74 68  "veth"
    2c 00 02 00  IFLA_INFO_DATA {
      28 00 01 00  VETH_INFO_PEER {
        00  ifi_family 0
        00  padding
        00 00  ifi_type 0
        00 00 00 00  ifi_index 0
        00 00 00 00  ifi_flags 0
        00 00 00 00  ifi_change 0
        08 00 1c 00  IFLA_NET_NS_FD
          04 00 00 00  4
        09 00 03 00  IFLA_IFNAME
          65 74 68 30 00  "eth0"
        00 00 00  padding
      }
    }
  }
`;

const PAIR = {
  header: ifinfomsg.zero,
  attrs: {
    ifname: 'veth0',
    mtu: 1400,
    linkinfo: { kind: 'veth', data: { peer: { ifname: 'eth0', netnsFd: 4 } } },
  },
};

test('createLink() makes both ends with one message', () => {
  const pair = {
    name: 'veth0',
    kind: 'veth' as const,
    mtu: 1400,
    peer: { name: 'eth0', netnsFd: 4 },
  };
  expect(sentBy(socket => createLink(socket, pair))).toEqual(bytesOf(OURS));
  const mac = '0a:58:0a:58:00:02';
  const [sent] = decodeMessages(
    sentBy(socket => createLink(socket, { ...pair, peer: { ...pair.peer, mtu: 1300, mac } })),
  );
  expect(linkMessage.decode(sent?.body ?? new Uint8Array()).attrs).toMatchObject({
    mtu: 1400,
    linkinfo: { data: { peer: { ifname: 'eth0', mtu: 1300, address: mac } } },
  });
});

test('linkMessage.decode() reads what we send and what `ip` sends', () => {
  expect(linkMessage.decode(bodyOf(OURS))).toEqual(PAIR);
  expect(linkMessage.decode(bodyOf(THEIRS))).toEqual(PAIR);
});
