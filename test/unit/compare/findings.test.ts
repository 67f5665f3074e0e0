import { describe, expect, test } from 'bun:test';
import { findDifferences } from '../../../src/compare/findings.ts';

describe('findDifferences()', () => {
  test('finds nothing in equal values, in any order', () => {
    expect(findDifferences({ a: 1, b: [{ c: 'x' }] }, { b: [{ c: 'x' }], a: 1 })).toEqual([]);
  });

  test('names the path to each difference', () => {
    expect(findDifferences({ a: { b: 1, c: [1, 2] } }, { a: { b: 2, c: [1, 3] } })).toEqual([
      { names: ['a', 'b'], first: 1, second: 2 },
      { names: ['a', 'c', '1'], first: 2, second: 3 },
    ]);
  });

  test('reports a part that one side lacks as a whole', () => {
    const link = { mtu: '1500', state: 'up' };
    expect(findDifferences({ eth0: link }, {})).toEqual([
      { names: ['eth0'], first: link, second: undefined },
    ]);
    expect(findDifferences({}, { a: [] }, ['x'])).toEqual([
      { names: ['x', 'a'], first: undefined, second: [] },
    ]);
  });

  test('distinguishes an object from a list', () => {
    expect(findDifferences({ a: {} }, { a: [] })).toHaveLength(1);
  });
});
