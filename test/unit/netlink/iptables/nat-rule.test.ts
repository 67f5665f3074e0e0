// Does a rule read like a line of iptables-save?

import { describe, expect, test } from 'bun:test';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';
import {
  type NatRule,
  prefixOf,
  readMatch,
  readTarget,
  renderRule,
} from '../../../../src/netlink/iptables/nat-rule.ts';

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
