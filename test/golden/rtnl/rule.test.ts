// Are routing policy rules described to the kernel byte for byte?
import { describe, expect, test } from 'bun:test';
import { parseCidr } from '../../../src/net/ip.ts';
import { addRule, fibRuleHdr, removeRule } from '../../../src/netlink/rtnl/rule.ts';
import { bytesOf, sentBy } from './captured.ts';

test('struct fib_rule_hdr has 12 bytes', () => {
  expect(fibRuleHdr.size).toBe(12);
});

describe('addRule()', () => {
  const V4 = { from: parseCidr('10.1.0.2/32'), table: 100 };
  /** `ip` sends exactly this, sequence number apart. */
  const sent = (length: string, more = '') => `
  ${length}
  20 00  nlmsg_type RTM_NEWRULE
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  family 2
  00  dst_len 0
  20  src_len 32
  00  tos 0
  64  table 100
  00 00  res
  01  action FR_ACT_TO_TBL
  00 00 00 00  flags 0
  08 00 02 00  FRA_SRC
    0a 01 00 02  10.1.0.2
${more}`;

  test('sends an IPv4 rule for a table below 256', () => {
    // ip rule add from 10.1.0.2/32 lookup 100
    const expected = bytesOf(sent('24 00 00 00  nlmsg_len 36'));
    expect(sentBy(socket => addRule(socket, V4))).toEqual(expected);
  });

  test('marks a rule with its program', () => {
    // ip rule add from 10.1.0.2/32 lookup 100 protocol 67
    const protocol = `
  05 00 15 00  FRA_PROTOCOL
    43 00 00 00  67
`;
    const expected = bytesOf(sent('2c 00 00 00  nlmsg_len 44', protocol));
    expect(sentBy(socket => addRule(socket, { ...V4, protocol: 67 }))).toEqual(expected);
  });
});

describe('removeRule()', () => {
  // ip -6 rule del from fd00:1::2 lookup 5000 priority 12
  const V6 = `
  40 00 00 00  nlmsg_len 64
  21 00  nlmsg_type RTM_DELRULE
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  0a  family 10
  00  dst_len 0
  80  src_len 128
  00  tos 0
  00  table 0
  00 00  res
  01  action FR_ACT_TO_TBL
  00 00 00 00  flags 0
  14 00 02 00  FRA_SRC
    fd 00 00 01 00 00 00 00 00 00 00 00 00 00 00 02  fd00:1::2
  08 00 06 00  FRA_PRIORITY
    0c 00 00 00  12
  08 00 0f 00  FRA_TABLE
    88 13 00 00  5000
`;

  test('sends an IPv6 rule for a table that only fits the attribute', () => {
    const rule = { from: parseCidr('fd00:1::2/128'), table: 5000, priority: 12 };
    expect(sentBy(socket => removeRule(socket, rule))).toEqual(bytesOf(V6));
  });
});
