// Which chains of a table of ours are filled, and when?
import { describe, expect, test } from 'bun:test';
import type { ChainSummary } from '../../../../src/netlink/nft/rule.ts';
import { isComplete, type Skeleton, skeletonChanges } from '../../../../src/netlink/nft/skeleton.ts';

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
