import { expect, test } from 'bun:test';
import { defined } from '../../../src/cni/defined.ts';

test('defined() keeps every value but undefined, in order', () => {
  const members = { a: 0, b: undefined, c: '', d: null, e: false, f: [] };
  const kept = defined(members);
  expect(Object.entries(kept)).toEqual([
    ['a', 0],
    ['c', ''],
    ['d', null],
    ['e', false],
    ['f', []],
  ]);
  expect('b' in kept).toBe(false);
});
