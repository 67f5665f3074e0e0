// Are rules in nft's words understood as nft does? Their bytes are compared in test/golden/nft, nft's listing in test/netns.
import { describe, expect, test } from 'bun:test';
import { MatchError } from '../../../../src/netlink/nft/match/parse.ts';
import { parseRule } from '../../../../src/netlink/nft/rule-words.ts';

describe('parseRule()', () => {
  test.each<[string, string]>([
    ['accept', 'immediate'],
    ['ip saddr 10.0.0.1 drop', 'meta cmp payload cmp immediate'],
    ['ip saddr 10.0.0.1 ip daddr 10.0.0.2 drop', 'meta cmp payload cmp payload cmp immediate'],
    ['meta nfproto ipv4 ip saddr 10.0.0.1 drop', 'meta cmp payload cmp immediate'],
    ['iifname @ports drop', 'meta lookup immediate'],
    [
      'ip saddr & 255.255.255.0 . ip daddr != @pairs masquerade',
      'meta cmp payload bitwise payload lookup masq',
    ],
    ['ct label 107 ip daddr vmap @snat4', 'ct bitwise cmp meta cmp payload lookup'],
  ])('reads %j', (text, names) => {
    expect(namesOf('inet', text)).toBe(names);
  });

  test('evaluates a lookup before the statements, so that they apply only to packets that are found', () => {
    const text = 'meta nfproto ipv4 ct label set 107 dnat ip to meta l4proto . th dport map @ports';
    expect(namesOf('inet', text)).toBe('meta cmp meta payload lookup immediate ct nat');
  });

  test('matches the IP version as the family of the table needs it', () => {
    expect(namesOf('bridge', 'ip6 daddr @isolated6 drop')).toBe('meta cmp payload lookup immediate');
    expect(namesOf('ip', 'ip daddr @pods accept')).toBe('payload lookup immediate');
    expect(parseRule('bridge', 'ip daddr @a drop')[0]).toMatchObject({ data: { key: 1 } });
    expect(parseRule('inet', 'ip daddr @a drop')[0]).toMatchObject({ data: { key: 15 } });
  });

  test.each([
    ['ip saddr . ip daddr 10.0.0.1', 'a key lacks its set'],
    ['ip saddr { 10.0.0.1 , 10.0.0.2 } drop', '"ip saddr" has several values'],
    ['ip saddr vmap pods', 'a set is missing before "pods"'],
    ['dnat ip to th dport @ports', '"map" is missing'],
    ['reject', '"reject" is not a supported match'],
  ])('refuses %j', (text, problem) => {
    expect(() => parseRule('inet', text)).toThrow(MatchError);
    expect(() => parseRule('inet', text)).toThrow(problem);
  });
});

function namesOf(family: 'inet' | 'bridge' | 'ip', text: string): string {
  return parseRule(family, text)
    .map(({ name }) => name)
    .join(' ');
}
