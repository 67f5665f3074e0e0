// Which chains of a table of ours are filled, and when?

import { describe, expect, test } from 'bun:test';
import { MatchError } from '../../../../src/netlink/nft/match.ts';
import {
  isComplete,
  parseRule,
  type Skeleton,
  skeletonChanges,
} from '../../../../src/netlink/nft/skeleton.ts';
import type { ChainSummary } from '../../../../src/netlink/nft/table.ts';

const table = { family: 'inet', name: 'catena' } as const;
const SKELETON: Skeleton = {
  table,
  comment: 'catena: a table',
  version: 2,
  sets: [{ table, name: 'pods', key: ['ipv4_addr'] }],
  chains: [
    { name: 'admin' },
    { name: 'sub', rules: ['drop'] },
    {
      name: 'main',
      base: { type: 'filter', hook: 'forward', priority: 0 },
      rules: ['jump admin', 'ip saddr @pods jump sub'],
    },
  ],
};
const NOTE = 'catena rules, version 2';
const COMPLETE = new Map<string, ChainSummary>([
  ['admin', { count: 7 }],
  ['sub', { count: 1, comment: NOTE }],
  ['main', { count: 2, comment: NOTE }],
]);
const CREATION = ['add table', 'add set "pods"', 'add chain "admin"', 'add chain "sub"', 'add chain "main"'];

describe('skeletonChanges()', () => {
  test('creates everything when nothing is present', () => {
    const rules = ['add rule to chain "sub"', 'add rule to chain "main"', 'add rule to chain "main"'];
    expect(opsOf(new Map())).toEqual([...CREATION, ...rules]);
  });

  test.each<[string, ChainSummary]>([
    ['too few rules', { count: 1, comment: NOTE }],
    ['too many rules', { count: 3, comment: NOTE }],
    ['the rules of another version', { count: 2, comment: 'catena rules, version 1' }],
    ['the rules of the first version', { count: 2 }],
  ])('empties and fills a chain with %s, and no other', (_what, main) => {
    const rules = ['add rule to chain "main"', 'add rule to chain "main"'];
    const [table = '', ...rest] = CREATION;
    const present = new Map([...COMPLETE, ['main', main]]);
    expect(isComplete(SKELETON, present)).toBe(false);
    // Another release may have had another priority, which an existing chain keeps.
    expect(opsOf(present)).toEqual([table, 'flush chain "main"', 'delete chain "main"', ...rest, ...rules]);
  });

  test('leaves complete chains alone', () => {
    expect(isComplete(SKELETON, COMPLETE)).toBe(true);
    expect(opsOf(COMPLETE)).toEqual(CREATION);
  });
});

function opsOf(present: ReadonlyMap<string, ChainSummary>): string[] {
  return skeletonChanges(SKELETON, present).map(({ op }) =>
    op.replace(/( (to|of) table)? "inet catena"$/, ''),
  );
}

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
