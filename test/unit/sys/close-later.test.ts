// Is a descriptor closed at once, and the object behind it soon?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { closeLater } from '../../../src/sys/close-later.ts';
import { withFlock } from '../../../src/sys/flock.ts';

test('closeLater() releases the object behind the descriptor', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'close-later-'));
  try {
    const file = `${dir}/lock`;
    const before = fs.readdirSync('/proc/self/fd').length;
    // The last close of the open file releases the lock: a flock that is still there would be waited for.
    withFlock(file, 1_000, () => {
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
    expect(withFlock(file, 10_000, () => 'free')).toBe('free');
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
