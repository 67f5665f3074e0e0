// Do failures of C functions become errors that say what was being done?
import { expect, test } from 'bun:test';
import { checked, cString, libc, SystemError } from '../../../src/sys/libc.ts';

test('checked() passes on non-negative values', () => {
  expect(checked(7, () => 'x')).toBe(7);
  expect(checked(7n, () => 'x')).toBe(7);
});

test('checked() throws the errno of a call that failed', () => {
  const act = () => checked(libc().setns(-1, 0), () => 'enter network namespace "nowhere"');
  expect(act).toThrow('Cannot enter network namespace "nowhere": bad file descriptor (EBADF)');
  expect(act).toThrow(SystemError);
});

test('cString() ends with a zero and refuses one inside', () => {
  expect([...cString('ä')]).toEqual([0xc3, 0xa4, 0]);
  expect(() => cString('a\0b')).toThrow('it holds a zero byte');
});
