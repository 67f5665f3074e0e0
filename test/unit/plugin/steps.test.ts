// Does CHECK say what it expected and what it found?

import { expect, test } from 'bun:test';
import { confirm, confirmAll } from '../../../src/plugin/steps.ts';

test('confirm() accepts equal values', () => {
  confirm('MTU of "eth0"', 1500, 1500);
  confirm('addresses', ['a'], ['a']);
});

test('confirm() names the thing, the expected and the found value', () => {
  expect(() => confirm('MTU of "eth0"', 1400, 1500)).toThrow(
    'Cannot confirm MTU of "eth0": expected 1400, found 1500',
  );
  expect(() => confirm('owner', 'a', undefined)).toThrow('Cannot confirm owner: expected "a", found nothing');
});

test('confirmAll() names the first few problems', () => {
  confirmAll('rules', []);
  expect(() => confirmAll('rules', ['a', 'b'])).toThrow('Cannot confirm rules: a, b');
  expect(() => confirmAll('rules', [...'abcdefg'])).toThrow('Cannot confirm rules: a, b, c, d, e and 2 more');
});
