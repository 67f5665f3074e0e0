// Is the id of another namespace asked for, and read, byte for byte?
import { expect, test } from 'bun:test';
import { netnsIdOf, rtgenmsg } from '../../../src/netlink/rtnl/link.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

test('struct rtgenmsg has 1 byte', () => {
  expect(rtgenmsg.size).toBe(1);
});

// ip netns list-id target-nsid … (`ip` asks for one namespace by its descriptor in the same way)
const ASK = `
  1c 00 00 00  nlmsg_len 28
  5a 00  nlmsg_type RTM_GETNSID
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  rtgen_family 0
  00 00 00  padding
  08 00 03 00  NETNSA_FD
    05 00 00 00  5
`;

// The answers of Linux 6.18 about a namespace with an id, and about one's own.
const ASSIGNED = `
  1c 00 00 00  nlmsg_len 28
  58 00  nlmsg_type RTM_NEWNSID
  00 00  nlmsg_flags 0
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  rtgen_family 0
  00 00 00  padding
  08 00 01 00  NETNSA_NSID
    00 00 00 00  0
`;
const NOT_ASSIGNED = `
  1c 00 00 00  nlmsg_len 28
  58 00  nlmsg_type RTM_NEWNSID
  00 00  nlmsg_flags 0
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  rtgen_family 0
  00 00 00  padding
  08 00 01 00  NETNSA_NSID
    ff ff ff ff  4294967295
`;

test('netnsIdOf() asks by descriptor', () => {
  expect(sentBy(socket => netnsIdOf(socket, 5))).toEqual(bytesOf(ASK));
});

const RTM_GETNSID = 0x5a;

test('netnsIdOf() reads the id, or -1 for none', () => {
  const ids = [ASSIGNED, NOT_ASSIGNED].map(reply =>
    answering(
      // Where there is no id, it has the devices shown and asks again.
      ({ type }) => (type === RTM_GETNSID ? [bodyOf(reply)] : []),
      socket => netnsIdOf(socket, 5),
    ),
  );
  expect(ids).toEqual([0, -1]);
});

test('netnsIdOf() reads the id that a namespace gets when a device that leads there is shown', () => {
  const replies = [NOT_ASSIGNED, ASSIGNED];
  const id = answering(
    ({ type }) => (type === RTM_GETNSID ? [bodyOf(replies.shift() ?? '')] : []),
    socket => netnsIdOf(socket, 5),
  );
  expect(id).toBe(0);
});
