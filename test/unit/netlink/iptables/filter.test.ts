// Are rules of the table "filter" written and read as iptables writes and prints them?

import { expect, test } from 'bun:test';
import { encodeFilterRule, renderFilterRule } from '../../../../src/netlink/iptables/filter.ts';

const RULES: [4 | 6, string][] = [
  [4, '-d 10.9.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT'],
  [6, '-s fd00:9::2/128 -j ACCEPT'],
  [4, '-m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD'],
  [4, '-i cni0 ! -o cni0 -m comment --comment "two words" -j CNI-ISOLATION-STAGE-2'],
  [4, '-o cni0 -m comment --comment word -j DROP'],
  [4, '! -s 10.9.0.2/32 -j RETURN'],
];

test.each(RULES)('IPv%i: "%s" is read back unchanged', (family, rule) => {
  const expressions = encodeFilterRule(family, rule);
  expect(renderFilterRule(family, { chain: 'FORWARD', handle: 1n, expressions })).toBe(`FORWARD ${rule}`);
});

test.each([
  [4, '-p tcp -j ACCEPT', '"-p" is not known'],
  [4, '-s 10.9.0.0/24 -j ACCEPT', 'it is not one address of IPv4'],
  [4, '-s fd00::1/128 -j ACCEPT', 'it is not one address of IPv4'],
  [6, '-m conntrack --ctstate NEW -j ACCEPT', '"-m" is not known'],
] as const)('IPv%i: "%s" is refused rather than written as something else', (family, rule, words) => {
  expect(() => encodeFilterRule(family, rule)).toThrow(words);
});

test('renderFilterRule() refuses rules that no plugin writes', () => {
  const [load, compare, ...rest] = encodeFilterRule(4, '-s 10.9.0.2/32 -j ACCEPT');
  const wide = { name: 'cmp', data: { ...compare?.data, data: { value: Uint8Array.of(10, 9, 0) } } };
  const limit = { name: 'limit', data: new Uint8Array(8) };
  for (const expressions of [
    [load, wide, ...rest],
    [limit, ...rest],
  ]) {
    const rule = { chain: 'FORWARD', handle: 1n, expressions: expressions.flatMap(one => one ?? []) };
    expect(renderFilterRule(4, rule)).toBeUndefined();
  }
});
