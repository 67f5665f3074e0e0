import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { removeFile } from '../../../src/files/remove-file.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-files-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

test('removeFile() removes a file or a symbolic link, and ignores a missing one', () => {
  const [file, link] = [path.join(dir, 'file'), path.join(dir, 'link')];
  fs.writeFileSync(file, '');
  fs.symlinkSync('/nowhere', link);
  for (const one of [file, link, file, path.join(file, 'below')]) removeFile(one);
  expect(fs.readdirSync(dir)).toEqual([]);
});

test('removeFile() keeps a directory, whatever it contains', () => {
  fs.mkdirSync(path.join(dir, 'a/b'), { recursive: true });
  removeFile(path.join(dir, 'a'), 'record');
  expect(fs.readdirSync(path.join(dir, 'a'))).toEqual(['b']);
});

test('removeFile() names the file, the reason and the remedy', () => {
  // Not even root can remove anything there.
  expect(() => removeFile('/proc/self/status', 'record')).toThrow(
    /^Cannot remove record "\/proc\/self\/status": (EPERM|EACCES): .*; let this user write there, or run as root$/,
  );
});
