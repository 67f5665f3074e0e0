import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  findPlugin,
  findPluginFile,
  isFront,
  isOwnExecutable,
  ownExecutables,
  parsePluginDirs,
  programOf,
} from '../../../../src/chain/config/find-plugin.ts';

let dir: string;
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-find-'));
  for (const sub of ['a', 'b', 'a/folder', 'b/later']) fs.mkdirSync(path.join(dir, sub));
  for (const file of ['a/both', 'b/both', 'b/second', 'b/folder']) fs.writeFileSync(path.join(dir, file), '');
  fs.symlinkSync('second', path.join(dir, 'b/linked'));
  for (const name of ['second', 'dangling']) fs.symlinkSync('nowhere', path.join(dir, `a/${name}`));
});
afterAll(() => fs.rmSync(dir, { recursive: true }));

describe('findPlugin()', () => {
  const find = (type: string) =>
    path.relative(dir, findPlugin(type, [`${dir}/a`, `${dir}/missing`, `${dir}/b`]));

  test.each([
    ['the first of several', 'both', 'a/both'],
    ['a file past a dangling link', 'second', 'b/second'],
    ['a file past a folder of that name', 'folder', 'b/folder'],
    ['what a link points to', 'linked', 'b/linked'],
  ])('finds %s', (_, type, expected) => {
    expect(find(type)).toBe(expected);
  });

  test('treats an empty directory as the current one, and makes its path absolute', () => {
    expect(findPlugin('package.json', ['/nonexistent', ''])).toBe(path.resolve('package.json'));
  });

  test.each([
    ['an empty type', '', 'a plugin type is a file name, without "/"'],
    ['a path', '../bin/evil', 'a plugin type is a file name, without "/"'],
    ['an absolute path', '/bin/sh', 'a plugin type is a file name, without "/"'],
    ['a type too long for a file', 'x'.repeat(300), 'no such file in'],
    ['a folder', 'later', '"DIR/b/later" is not a regular file'],
    ['dots', '..', '"'],
    ['a dangling link', 'dangling', '"DIR/a/dangling" is a symbolic link that leads to no file'],
    ['what is not there', 'nope', 'no such file in'],
  ])('refuses %s', (_, type, message) => {
    const told = message.replace('DIR', dir);
    expect(() => find(type)).toThrow(`Cannot find plugin "${type}": ${told}`);
  });

  test('names the directories that it searched', () => {
    expect(() => findPlugin('x', ['/p/one', '/p/two'])).toThrow(
      'Cannot find plugin "x": no such file in "/p/one", "/p/two"',
    );
    expect(() => findPlugin('package.jsn', [process.cwd()])).toThrow('; did you mean "package.json"?');
    expect(() => findPlugin('x', [])).toThrow('no plugin directories are configured; set CNI_PATH');
  });
});

test('parsePluginDirs() splits at colons and keeps empty elements', () => {
  expect(parsePluginDirs('')).toEqual([]);
  expect(parsePluginDirs('/a:/b')).toEqual(['/a', '/b']);
  expect(parsePluginDirs('/a::/b')).toEqual(['/a', '', '/b']);
});

describe('our own executables', () => {
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
});
