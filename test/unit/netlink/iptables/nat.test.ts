// Are rules that iptables wrote to nf_tables read, and is it noticed what they test in addition?

import { describe, expect, test } from 'bun:test';
import { parseCidr } from '../../../../src/net/ip.ts';
import { decodeEntries, decodeNatRule } from '../../../../src/netlink/iptables/nat.ts';
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

describe('legacy', () => {
  /** Offsets in struct ipt_entry; see linux/netfilter_ipv4/ip_tables.h. */
  const AT = { src: 0, dst: 4, smsk: 8, dmsk: 12, inMask: 48, outMask: 64, proto: 80, invflags: 83 };
  const ENTRY_BYTES = 112;
  const TARGET_BYTES = 40;

  const ONES = [255, 255, 255, 255];
  type Parts = Partial<Record<keyof typeof AT, readonly number[]>>;

  /** One rule of POSTROUTING with `-j ACCEPT`. */
  function decode(parts: Parts) {
    const bytes = new Uint8Array(ENTRY_BYTES + TARGET_BYTES);
    const view = new DataView(bytes.buffer);
    for (const [name, value] of Object.entries(parts)) bytes.set(value, AT[name as keyof typeof AT]);
    view.setUint16(88, ENTRY_BYTES, true);
    view.setUint16(90, bytes.length, true);
    view.setUint16(ENTRY_BYTES, TARGET_BYTES, true);
    view.setInt32(ENTRY_BYTES + 32, -2, true);
    return decodeEntries(4, bytes, new Map([[0, 'POSTROUTING']]))[0];
  }

  describe('decodeEntries()', () => {
    test('reads addresses and protocol', () => {
      expect(
        decode({ src: [10, 9, 0, 0], smsk: [255, 255, 0, 0], dst: [10, 8, 0, 1], dmsk: ONES, proto: [6] }),
      ).toEqual({
        chain: 'POSTROUTING',
        target: 'ACCEPT',
        protocol: 6,
        source: { cidr: parseCidr('10.9.0.0/16'), not: false },
        destination: { cidr: parseCidr('10.8.0.1/32'), not: false },
      });
    });

    test('reads which addresses are inverted', () => {
      const rule = decode({
        src: [10, 9, 0, 1],
        smsk: ONES,
        dst: [10, 8, 0, 1],
        dmsk: ONES,
        invflags: [0x10],
      });
      expect([rule?.source?.not, rule?.destination?.not, rule?.more]).toEqual([false, true, undefined]);
    });

    test.each<[string, Parts]>([
      ['a mask that is no prefix', { dst: [10, 0, 0, 1], dmsk: [255, 0, 0, 255] }],
      ['an incoming interface', { inMask: ONES }],
      ['an outgoing interface', { outMask: ONES }],
      ['all protocols but one', { proto: [6], invflags: [0x40] }],
      ['all fragments but the first', { invflags: [0x20] }],
    ])('says that it has not read everything: %s', (_what, parts) => {
      expect(decode(parts)).toMatchObject({ source: undefined, destination: undefined, more: true });
    });
  });
});
