// Are questions about kernel support asked so that nothing can come of them?
import { expect, test } from 'bun:test';
import { createUpper, requireLinkKind, requireQdiscKind } from '../../../src/netlink/rtnl/kinds.ts';
import { createLink } from '../../../src/netlink/rtnl/link.ts';
import { NetlinkError, type NetlinkSocket } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { answering, bytesOf, sentBy } from './captured.ts';

// ip link add numtxqueues 0 type ifb
const LINK = `
  34 00 00 00  nlmsg_len 52
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
  0c 00 12 80  IFLA_LINKINFO (NLA_F_NESTED) {
    08 00 01 00  IFLA_INFO_KIND
      69 66 62 00  "ifb"
  }
  08 00 1f 00  IFLA_NUM_TX_QUEUES
    00 00 00 00  0
`;

test('requireLinkKind() requests a device without queues', () => {
  expect(sentBy(socket => requireLinkKind(socket, 'ifb'))).toEqual(bytesOf(LINK));
});

// tc qdisc add dev lo root tbf
const TBF = `
  2c 00 00 00  nlmsg_len 44
  24 00  nlmsg_type RTM_NEWQDISC
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  01 00 00 00  tcm_ifindex 1
  00 00 00 00  tcm_handle 0
  ff ff ff ff  tcm_parent 0xffffffff
  00 00 00 00  tcm_info 0
  08 00 01 00  TCA_KIND
    74 62 66 00  "tbf"
`;

test('requireQdiscKind() requests a bucket without parameters', () => {
  expect(sentBy(socket => requireQdiscKind(socket, 'tbf'))).toEqual(bytesOf(TBF));
});

test('requireLinkKind() reads EINVAL as supported and EOPNOTSUPP as unsupported', () => {
  const refusing = (errno: number) => () => {
    refusedWith(errno, 'Unknown device type', socket => requireLinkKind(socket, 'ifb'));
  };
  expect(refusing(Errno.EINVAL)).not.toThrow();
  expect(refusing(Errno.EOPNOTSUPP)).toThrow(
    'Cannot use devices of kind ifb: operation not supported (EOPNOTSUPP), kernel says "Unknown device type"',
  );
});

test('only a kind that the kernel does not know needs a module', () => {
  const refuse = (said: string, work: (socket: NetlinkSocket) => void) => () =>
    refusedWith(Errno.EOPNOTSUPP, said, work);
  const create = (said: string) =>
    refuse(said, socket => createLink(socket, { name: 'br0', kind: 'bridge' }));
  const upper = { name: 'eth0', kind: 'ipvlan', data: {}, lower: 2 } as const;
  expect(refuse('Unknown device type', socket => createUpper(socket, upper))).toThrow(
    '; this kernel needs its module: modprobe rtnl-link-ipvlan',
  );
  expect(create('Unknown device type')).toThrow('; this kernel needs its module: modprobe rtnl-link-bridge');
  expect(create('VLANs not supported on device')).toThrow(/kernel says "VLANs not supported on device"$/);
});

function refusedWith(errno: number, said: string, work: (socket: NetlinkSocket) => void): void {
  answering(({ op }) => {
    throw new NetlinkError(op, errno, said);
  }, work);
}
