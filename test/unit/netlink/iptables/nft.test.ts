// Are rules that iptables wrote to nf_tables read, and is it noticed what they test in addition?
import { describe, expect, test } from 'bun:test';
import { parseCidr } from '../../../../src/net/cidr.ts';
import { decodeNatRule } from '../../../../src/netlink/iptables/nft.ts';
import {
  type Expression,
  isEqual,
  loadAddress,
  loadTransportHeader,
  maskRegister,
  REG,
} from '../../../../src/netlink/nft/expr.ts';
import { parseRule } from '../../../../src/netlink/nft/skeleton.ts';

const decode = (expressions: readonly Expression[]) =>
  decodeNatRule(4, { chain: 'c', handle: 1n, expressions });

describe('decodeNatRule()', () => {
  test('reads addresses, protocol, port and target', () => {
    expect(decode(parseRule('ip', 'ip saddr 10.9.0.0/17 ip daddr 10.8.0.1 tcp dport 80 jump sub'))).toEqual({
      chain: 'c',
      handle: 1n,
      target: 'sub',
      source: { cidr: parseCidr('10.9.0.0/17'), not: false },
      destination: { cidr: parseCidr('10.8.0.1/32'), not: false },
      protocol: 6,
      ports: [80],
    });
  });

  const mask = Uint8Array.of(255, 0, 0, 255);
  test.each<[string, readonly Expression[]]>([
    [
      'a mask that is no prefix',
      [loadAddress(4, 'saddr', REG.first), maskRegister(REG.first, mask), isEqual(REG.first, mask)],
    ],
    [
      'a masked port',
      [
        loadTransportHeader(REG.first, 2, 2),
        maskRegister(REG.first, Uint8Array.of(0, 1)),
        isEqual(REG.first, Uint8Array.of(0, 1)),
      ],
    ],
    ['a source port', parseRule('ip', 'th sport 80')],
    ['all ports but one', parseRule('ip', 'th dport != 80')],
    ['an interface', parseRule('ip', 'iifname eth0')],
  ])('says that it has not read everything: %s', (_what, expressions) => {
    expect(decode(expressions)).toEqual({ chain: 'c', handle: 1n, target: '', more: true });
  });
});
