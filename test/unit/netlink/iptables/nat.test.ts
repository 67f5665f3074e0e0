// Are rules that iptables wrote to nf_tables read, and is it noticed what they test in addition?

import { describe, expect, test } from 'bun:test';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';
import {
  decodeEntries,
  decodeNatRule,
  type NatRule,
  prefixOf,
  readMatch,
  readTarget,
  renderRule,
} from '../../../../src/netlink/iptables/nat.ts';
import {
  type Expression,
  isEqual,
  loadAddress,
  loadHeader,
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
        loadHeader('th', REG.first, 2, 2),
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

describe('rules of table nat', () => {
  const match = (text: string, not = false) => ({ cidr: parseCidr(text), not });

  const LINES: readonly (readonly [line: string, rule: NatRule])[] = [
    ['POSTROUTING -j ACCEPT', { chain: 'POSTROUTING', target: 'ACCEPT' }],
    [
      'POSTROUTING -s 10.1.0.5/32 -m comment --comment "name: \\"a\\" id: \\"b\\"" -j CNI-x',
      { chain: 'POSTROUTING', target: 'CNI-x', source: match('10.1.0.5/32'), comment: 'name: "a" id: "b"' },
    ],
    // The kernel keeps no host bits.
    ['C -d 10.1.0.0/24 -j ACCEPT', { chain: 'C', target: 'ACCEPT', destination: match('10.1.0.5/24') }],
    [
      'C ! -d ff00::/8 -j MASQUERADE',
      { chain: 'C', target: 'MASQUERADE', destination: match('ff00::/8', true) },
    ],
    ['C -m comment --comment "a\\\\b" -j X', { chain: 'C', target: 'X', comment: 'a\\b' }],
  ];

  test.each<[number[], number | undefined]>([
    [[255, 255, 255, 0], 24],
    [[255, 255, 128, 0], 17],
    [[255, 255, 255, 255], 32],
    [[0, 0, 0, 0], 0],
    [[255, 0, 0, 255], undefined],
    [[255, 0, 255, 0], undefined],
    [[254, 255, 0, 0], undefined],
  ])('prefixOf() of %j is %p', (mask, prefix) => {
    expect(prefixOf(Uint8Array.from(mask))).toBe(prefix);
  });

  test.each(LINES)('renderRule() renders %s', (line, rule) => {
    expect(renderRule(rule)).toBe(line);
  });

  const bytes = (hex: string) => Uint8Array.from(Buffer.from(hex.replaceAll(/\s/g, ''), 'hex'));

  /** struct xt_sctp_info: dpts[2], spts[2], 52 bytes about chunks, then flags and invflags. */
  function sctp(ports: string, flags: number, inverse: number): string {
    return `${ports} ${'00'.repeat(52)} 0${flags}000000 0${inverse}000000`;
  }

  describe('readMatch()', () => {
    test('reads a comment', () => {
      expect(readMatch({ name: 'comment', revision: 0, info: bytes('646e6174 00 7878') })).toEqual({
        comment: 'dnat',
      });
    });

    // struct xt_multiport_v1: flags, count, ports[15] of the machine, pflags[15], invert.
    test.each([
      ['destination ports', '01', '00', '00', { ports: [80, 443] }],
      ['source ports', '00', '00', '00', undefined],
      ['ports of either side', '02', '00', '00', undefined],
      ['all ports but some', '01', '00', '01', undefined],
      ['a range', '01', '01', '00', undefined],
    ])('reads destination ports and nothing else: %s', (_what, flags, isRange, invert, wanted) => {
      const info = bytes(`${flags}02 5000 bb01 ${'00'.repeat(26)} ${isRange} ${'00'.repeat(14)} ${invert}`);
      expect(readMatch({ name: 'multiport', revision: 1, info })).toEqual(wanted);
    });

    test.each([
      ['tcp', '0000 ffff 5000 5000 00 00 00 00', [80]],
      ['udp', '0000 ffff 3500 3500 00', [53]],
      ['sctp', sctp('5000 5000 0000 0000', 2, 0), [80]],
      ['sctp', sctp('5000 5000 0000 ffff', 3, 0), [80]],
    ])('reads the port of %s', (name, info, ports) => {
      expect(readMatch({ name, revision: 0, info: bytes(info) })).toEqual({ ports });
    });

    test.each([
      ['a range of ports', 'tcp', '0000 ffff 5000 5a00 00 00 00 00'],
      ['a source port', 'tcp', '5000 5000 5000 5000 00 00 00 00'],
      ['all source ports but one', 'tcp', '0000 ffff 5000 5000 00 00 00 01'],
      ['all ports but one', 'tcp', '0000 ffff 5000 5000 00 00 00 02'],
      ['flags', 'tcp', '0000 ffff 5000 5000 00 17 02 00'],
      ['an option', 'tcp', '0000 ffff 5000 5000 02 00 00 00'],
      ['a source port of UDP', 'udp', '3500 3500 3500 3500 00'],
      ['all ports of UDP but one', 'udp', '0000 ffff 3500 3500 02'],
      ['a source port of SCTP', 'sctp', sctp('5000 5000 5000 5000', 3, 0)],
      ['all ports of SCTP but one', 'sctp', sctp('5000 5000 0000 0000', 2, 2)],
      ['kinds of chunks', 'sctp', sctp('5000 5000 0000 0000', 6, 0)],
      ['a match that it does not know', 'mark', '0100 0000 0100 0000 00'],
      ['bytes that are too few', 'tcp', '0000'],
    ])('reports that it cannot decode %s', (_name, name, info) => {
      expect(readMatch({ name, revision: 0, info: bytes(info) })).toBeUndefined();
    });
  });

  describe('readTarget()', () => {
    test('reads a mark', () => {
      expect(readTarget(4, { name: 'MARK', revision: 2, info: bytes('00200000 00200000') })).toEqual({
        target: 'MARK',
        mark: 0x2000,
      });
    });

    test.each([
      ['IPv4, revision 2', 4, 2, `03000000 0a090002 ${'00'.repeat(12)}`, '10.9.0.2'],
      ['IPv4, revision 0', 4, 0, '01000000 03000000 0a090002 0a090002 0050 0050', '10.9.0.2'],
      ['IPv6', 6, 2, '03000000 fd00000000000000 0000000000000002', 'fd00::2'],
    ] as const)('reads the destination of packets: %s', (_name, family, revision, info, to) => {
      expect(readTarget(family, { name: 'DNAT', revision, info: bytes(info) })).toEqual({
        target: 'DNAT',
        to: parseIp(to),
      });
    });

    test('returns only the names of others', () => {
      expect(readTarget(4, { name: 'LOG', revision: 0, info: bytes('00') })).toEqual({ target: 'LOG' });
    });
  });
});
