// Do failures of C functions become errors that say what was being done?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { withFlock } from '../../../src/sys/flock.ts';
import { checked, closeLater, cString, libc, SystemError } from '../../../src/sys/libc.ts';

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

test('closeLater() releases the object behind the descriptor', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'close-later-'));
  try {
    const file = `${dir}/lock`;
    const before = fs.readdirSync('/proc/self/fd').length;
    // The last close of the open file releases the lock: a flock that is still there would be waited for.
    withFlock(file, () => {
      const held =
        fs
          .readdirSync('/proc/self/fd')
          .map(Number)
          .find(fd => leadsTo(fd, file)) ?? -1;
      // `withFlock` is left to close a number that is not open.
      const spare = fs.openSync(file, 'r');
      closeLater(held);
      expect(fs.existsSync(`/proc/self/fd/${held}`)).toBe(false);
      expect(fs.openSync(file, 'r')).toBe(held);
      fs.closeSync(spare);
    });
    expect(fs.readdirSync('/proc/self/fd').length).toBe(before);
    expect(withFlock(file, () => 'free', { deadlineMs: 10_000 })).toBe('free');
  } finally {
    fs.rmSync(dir, { recursive: true, force: true });
  }
});

test('closeLater() of a closed descriptor fails like close()', () => {
  expect(() => closeLater(1_000_000)).toThrow('EBADF');
});

function leadsTo(fd: number, file: string): boolean {
  try {
    return fs.readlinkSync(`/proc/self/fd/${fd}`) === file;
  } catch {
    return false;
  }
}
