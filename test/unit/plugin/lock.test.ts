import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { withPluginLock } from '../../../src/plugin/lock.ts';

test('an error of the file system says that it was about a lock, and which one', () => {
  const path = '/proc/version/a.lock';
  const message = expect.stringContaining(`Cannot lock "${path}": ENOTDIR`);
  expect(() => withPluginLock(path, () => {})).toThrow(expect.objectContaining({ code: 5, message }));
});

test('a lock that cannot be taken at all is no reason to try again', () => {
  const dir = mkdtempSync(join(tmpdir(), 'lock-'));
  const path = join(dir, 'a.lock');
  symlinkSync('elsewhere', path);
  const message = `Cannot lock "${path}": it is a symbolic link; remove it`;
  expect(() => withPluginLock(path, () => {})).toThrow(expect.objectContaining({ code: 5, message }));
  rmSync(dir, { recursive: true });
});
