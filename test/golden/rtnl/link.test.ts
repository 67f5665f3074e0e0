// Are links described to the kernel, and read from it, byte for byte?
import { describe, expect, test } from 'bun:test';
import {
  addAltNameRequest,
  createLink,
  findLink,
  ifinfomsg,
  linkMessage,
  removeLink,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import { NetlinkError } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

// What we send was compared with what `ip` sends (strace -e trace=sendmsg -e write=3): the same but for the order of
// attributes, NLA_F_NESTED, which it leaves out, and the zero at the end of kinds and aliases, which it leaves out as well.

test('struct ifinfomsg has 16 bytes', () => {
  expect(ifinfomsg.size).toBe(16);
});

describe('createLink()', () => {
  // ip link add br0 type bridge
  const BRIDGE = `
  38 00 00 00  nlmsg_len 56
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
  10 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    0b 00 01 00  IFLA_INFO_KIND
      62 72 69 64 67 65 00  "bridge"
    00  padding
  }
`;

  test('sends a bridge', () => {
    expect(sentBy(socket => createLink(socket, { name: 'br0', kind: 'bridge' }))).toEqual(bytesOf(BRIDGE));
    expect(linkMessage.decode(bodyOf(BRIDGE))).toEqual({
      header: ifinfomsg.zero,
      attrs: { ifname: 'br0', linkinfo: { kind: 'bridge' } },
    });
  });

  // ip link add bwp0 up type ifb
  const IFB = `
  38 00 00 00  nlmsg_len 56
  10 00  nlmsg_type RTM_NEWLINK
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  00 00 00 00  ifi_index 0
  01 00 00 00  ifi_flags 1
  01 00 00 00  ifi_change 1
  09 00 03 00  IFLA_IFNAME
    62 77 70 30 00  "bwp0"
  00 00 00  padding
  0c 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    08 00 01 00  IFLA_INFO_KIND
      69 66 62 00  "ifb"
  }
`;

  test('sends an ifb that is up from the start', () => {
    expect(sentBy(socket => createLink(socket, { name: 'bwp0', kind: 'ifb', up: true }))).toEqual(
      bytesOf(IFB),
    );
    expect(linkMessage.decode(bodyOf(IFB))).toEqual({
      header: { ...ifinfomsg.zero, flags: 1, change: 1 },
      attrs: { ifname: 'bwp0', linkinfo: { kind: 'ifb' } },
    });
  });
});

describe('setLink()', () => {
  // ip link set dev veth0 master br0
  const MASTER = `
  28 00 00 00  nlmsg_len 40
  10 00  nlmsg_type RTM_NEWLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  03 00 00 00  ifi_index 3
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  08 00 0a 00  IFLA_MASTER
    02 00 00 00  2
`;

  test('sends the bridge to join', () => {
    expect(sentBy(socket => setLink(socket, 3, { master: 2 }))).toEqual(bytesOf(MASTER));
    expect(linkMessage.decode(bodyOf(MASTER)).attrs).toEqual({ master: 2 });
  });

  // ip link set dev veth0 up promisc off
  const UP = `
  20 00 00 00  nlmsg_len 32
  10 00  nlmsg_type RTM_NEWLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  03 00 00 00  ifi_index 3
  01 00 00 00  ifi_flags 1
  01 01 00 00  ifi_change 0x101
`;

  test('changes only the given flags', () => {
    expect(sentBy(socket => setLink(socket, 3, { up: true, promisc: false }))).toEqual(bytesOf(UP));
    expect(linkMessage.decode(bodyOf(UP)).header).toMatchObject({ index: 3, flags: 0x1, change: 0x101 });
  });

  // ip link set dev veth0 mtu 1300 txqueuelen 500
  const SIZES = `
  30 00 00 00  nlmsg_len 48
  10 00  nlmsg_type RTM_NEWLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  03 00 00 00  ifi_index 3
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  08 00 04 00  IFLA_MTU
    14 05 00 00  1300
  08 00 0d 00  IFLA_TXQLEN
    f4 01 00 00  500
`;

  test('sends MTU and queue length', () => {
    expect(sentBy(socket => setLink(socket, 3, { mtu: 1300, txqlen: 500 }))).toEqual(bytesOf(SIZES));
    expect(linkMessage.decode(bodyOf(SIZES)).attrs).toEqual({ mtu: 1300, txqlen: 500 });
  });

  // ip link set dev bwp0 alias catena:net/ctr/eth0
  const ALIAS = `
  38 00 00 00  nlmsg_len 56
  10 00  nlmsg_type RTM_NEWLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  04 00 00 00  ifi_index 4
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  18 00 14 00  IFLA_IFALIAS
    63 61 74 65 6e 61 3a 6e 65 74 2f 63 74 72 2f 65 74 68 30 00  "catena:net/ctr/eth0"
`;

  test('sends an alias', () => {
    expect(sentBy(socket => setLink(socket, 4, { alias: 'catena:net/ctr/eth0' }))).toEqual(bytesOf(ALIAS));
    expect(linkMessage.decode(bodyOf(ALIAS)).attrs).toEqual({ alias: 'catena:net/ctr/eth0' });
  });
});

// ip link del bwp0 (which looks its index up first)
const REMOVE = `
  20 00 00 00  nlmsg_len 32
  11 00  nlmsg_type RTM_DELLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  04 00 00 00  ifi_index 4
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
`;

test('removeLink() names a device by index', () => {
  expect(sentBy(socket => removeLink(socket, 4))).toEqual(bytesOf(REMOVE));
});

// ip link show dev veth0
const FIND = `
  2c 00 00 00  nlmsg_len 44
  12 00  nlmsg_type RTM_GETLINK
  05 00  nlmsg_flags REQUEST|ACK
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
`;

test('findLink() names a device by name', () => {
  expect(sentBy(socket => findLink(socket, 'veth0'))).toEqual(bytesOf(FIND));
});

describe('a device that changes its namespace', () => {
  // ip link set dev eth1 netns c1 name eth0
  const MOVE = `
  34 00 00 00  nlmsg_len 52
  10 00  nlmsg_type RTM_NEWLINK
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  03 00 00 00  ifi_index 3
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  09 00 03 00  IFLA_IFNAME
    65 74 68 30 00  "eth0"
  00 00 00  padding
  08 00 1c 00  IFLA_NET_NS_FD
    09 00 00 00
`;

  test('setLink() sends namespace and name together', () => {
    expect(sentBy(socket => setLink(socket, 3, { netnsFd: 9, name: 'eth0' }))).toEqual(bytesOf(MOVE));
  });

  // ip link property add dev eth1 altname enp3s0
  const ALT_NAME = `
  30 00 00 00  nlmsg_len 48
  6c 00  nlmsg_type RTM_NEWLINKPROP
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  ifi_family 0
  00  padding
  00 00  ifi_type 0
  03 00 00 00  ifi_index 3
  00 00 00 00  ifi_flags 0
  00 00 00 00  ifi_change 0
  10 00 34 80  IFLA_PROP_LIST (NLA_F_NESTED) {
    0b 00 35 00  IFLA_ALT_IFNAME
      65 6e 70 33 73 30 00  "enp3s0"
    00  padding
  }
`;

  test('addAltNameRequest() sends a list of one name, which is read as such', () => {
    expect(sentBy(socket => socket.request(addAltNameRequest(3, 'enp3s0')))).toEqual(bytesOf(ALT_NAME));
    expect(linkMessage.decode(bodyOf(ALT_NAME)).attrs).toEqual({ propList: ['enp3s0'] });
  });
});

test.each([
  [Errno.ENODEV, false],
  [Errno.EPERM, true],
])('removeLink() that ends with error %d fails: %p', (errno, fails) => {
  const refuse = () => {
    throw new NetlinkError('delete link', errno);
  };
  const remove = () => answering(refuse, socket => removeLink(socket, 3));
  if (fails) expect(remove).toThrow(NetlinkError);
  else expect(remove).not.toThrow();
});
