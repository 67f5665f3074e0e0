// Do numbers of the kernel read as words, and are they the kernel's numbers?
import { expect, test } from 'bun:test';
import os from 'node:os';
import { Errno, renderErrno } from '../../../src/sys/errno.ts';

test('renderErrno() has text for common errors and the number for the rest', () => {
  expect(renderErrno(17)).toBe('object exists (EEXIST)');
  expect(renderErrno(4_000)).toBe('error 4000');
});

// ERESTART never leaves the kernel but in netlink answers, so systems do not list it.
const known = Object.entries(Errno).filter(([name]) => name in os.constants.errno);

test.each(known)('Errno.%s is the number of this system', (name, number) => {
  expect(os.constants.errno[name as keyof typeof os.constants.errno]).toBe(number);
});

test.each(Object.entries(Errno))('Errno.%s has a text', (name, number) => {
  expect(renderErrno(number)).toContain(`(${name})`);
});
