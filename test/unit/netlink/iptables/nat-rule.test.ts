// Does a rule read like a line of iptables-save?
import { expect, test } from 'bun:test';
import { parseCidr } from '../../../../src/net/cidr.ts';
import { type NatRule, prefixOf, renderRule } from '../../../../src/netlink/iptables/nat-rule.ts';

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
