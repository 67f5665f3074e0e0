// Which files are our own executables?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findPluginFile } from '../../../../src/chain/config/find-plugin.ts';
import {
  isFront,
  isOwnExecutable,
  ownExecutables,
  programOf,
} from '../../../../src/chain/config/own-executable.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-own-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

test('isOwnExecutable() recognises the running executable by device and inode', () => {
  fs.symlinkSync(process.execPath, path.join(dir, 'me'));
  fs.writeFileSync(path.join(dir, 'other'), '');
  expect(isOwnExecutable(path.join(dir, 'me'))).toBe(true);
  expect(isOwnExecutable(path.join(dir, 'other'))).toBe(false);
  for (const nothing of ['nope', 'other/bridge', 'x'.repeat(300)])
    expect(isOwnExecutable(path.join(dir, nothing))).toBe(false);
});

test('ownExecutables() looks at each file once', () => {
  const file = path.join(dir, 'replaced');
  fs.symlinkSync(process.execPath, file);
  const isOwn = ownExecutables();
  expect(isOwn(file)).toBe(true);
  fs.rmSync(file);
  expect([isOwn(file), ownExecutables()(file)]).toEqual([true, false]);
});

test('ownExecutables() does not look at a file that was looked at when it was found', () => {
  const { path: found, stat } = findPluginFile(path.basename(process.execPath), [
    path.dirname(process.execPath),
  ]);
  const [isOwn, nothing] = [ownExecutables(), path.join(dir, 'nothing')];
  expect([isOwn(nothing, stat), isOwn(nothing), isOwn(found)]).toEqual([true, true, true]);
});

test('isFront() knows no front when run from sources', () => {
  fs.writeFileSync(path.join(dir, 'front'), 'catena-core');
  expect(isFront(path.join(dir, 'front'))).toBe(false);
});

test('programOf() is the Bun program beside a front, also by a link, and otherwise the file itself', () => {
  const bin = path.join(dir, 'bin');
  fs.mkdirSync(bin);
  fs.writeFileSync(path.join(bin, 'catena-core'), 'the Bun program');
  fs.writeFileSync(path.join(bin, 'bridge'), 'a front that executes catena-core');
  fs.writeFileSync(path.join(bin, 'foreign'), 'a script of others');
  fs.symlinkSync(path.join(bin, 'bridge'), path.join(dir, 'linked'));
  expect(programOf(path.join(bin, 'bridge'))).toBe(path.join(bin, 'catena-core'));
  expect(programOf(path.join(dir, 'linked'))).toBe(path.join(bin, 'catena-core'));
  expect(programOf(path.join(bin, 'foreign'))).toBe(path.join(bin, 'foreign'));
  fs.rmSync(path.join(bin, 'catena-core'));
  expect(programOf(path.join(bin, 'bridge'))).toBe(path.join(bin, 'bridge'));
  expect(programOf(path.join(dir, 'missing'))).toBe(path.join(dir, 'missing'));
});
