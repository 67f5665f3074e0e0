import { expect, test } from 'bun:test';
import { withPluginLock } from '../../../src/plugin/lock.ts';

test('an error of the file system says that it was about a lock, and which one', () => {
  const path = '/proc/version/a.lock';
  const message = expect.stringContaining(`Cannot lock "${path}": ENOTDIR`);
  expect(() => withPluginLock(path, () => {})).toThrow(expect.objectContaining({ code: 5, message }));
});
