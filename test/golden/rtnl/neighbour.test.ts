// Are neighbours read as the kernel sends them?
import { expect, test } from 'bun:test';
import { renderIp } from '../../../src/net/ip.ts';
import { ndmsg, neighbourMessage } from '../../../src/netlink/rtnl/neighbour.ts';
import { bytesOf } from './captured.ts';

test('struct ndmsg has 12 bytes', () => {
  expect(ndmsg.size).toBe(12);
});

test('a neighbour is decoded', () => {
  // ip neighbour add 10.1.0.2 lladdr 0a:11:22:33:44:55 dev br0 nud permanent
  const BODY = `
  02  ndm_family 2
  00  pad
  00 00  pad
  03 00 00 00  ndm_ifindex 3
  80 00  ndm_state NUD_PERMANENT
  00  ndm_flags 0
  01  ndm_type 1
  08 00 01 00  NDA_DST
    0a 01 00 02  10.1.0.2
  0a 00 02 00  NDA_LLADDR
    0a 11 22 33 44 55  0a:11:22:33:44:55
  00 00  padding
`;
  const { header, attrs } = neighbourMessage.decode(bytesOf(BODY));
  expect([header.index, header.state]).toEqual([3, 0x80]);
  expect(attrs.destination && renderIp(attrs.destination)).toBe('10.1.0.2');
  expect(attrs.address).toBe('0a:11:22:33:44:55');
});
