import { afterEach, beforeEach, expect, test } from 'bun:test';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findConfFiles, findPluginFiles } from '../../../../src/chain/config/conf-files.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-files-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

function touch(...names: string[]): void {
  for (const name of names) {
    fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    fs.writeFileSync(path.join(dir, name), '');
  }
}
const names = (files: readonly string[]) => files.map(file => path.relative(dir, file));

test('findConfFiles() returns lists, then single plugins, each in byte order of their names', () => {
  touch(
    'b.conflist',
    'Z.conflist',
    'é.conflist',
    '.conflist',
    '1.json',
    '0.conf',
    'x.CONF',
    'y.conf~',
    'sub/z.conf',
  );
  expect(names(findConfFiles(dir))).toEqual([
    '.conflist',
    'Z.conflist',
    'b.conflist',
    'é.conflist',
    '0.conf',
    '1.json',
  ]);
});

test('findConfFiles() skips what is not a regular file, and says so', () => {
  touch('real/file');
  fs.symlinkSync('real', path.join(dir, 'a.conflist'));
  fs.symlinkSync('real/file', path.join(dir, 'b.conflist'));
  fs.symlinkSync('nowhere', path.join(dir, 'c.conflist'));
  fs.mkdirSync(path.join(dir, 'd.conflist'));
  execFileSync('mkfifo', [path.join(dir, 'e.conf')]);
  const skipped: string[] = [];
  const files = findConfFiles(dir, (file, problem) =>
    skipped.push(`${path.relative(dir, file)}: ${problem}`),
  );
  // A dangling link is kept: its reader reports the error.
  expect(names(files)).toEqual(['b.conflist', 'c.conflist']);
  expect(skipped).toEqual([
    'a.conflist: it is a symbolic link to a directory',
    'e.conf: it is not a regular file',
  ]);
});

test('findPluginFiles() returns .conf files of the directory named after the network', () => {
  touch('10.conflist', 'net/2.conf', 'net/1.conf', 'net/3.json', 'file');
  expect(names(findPluginFiles(path.join(dir, '10.conflist'), 'net'))).toEqual(['net/1.conf', 'net/2.conf']);
  expect(findPluginFiles(path.join(dir, '10.conflist'), 'none')).toEqual([]);
  expect(findPluginFiles(path.join(dir, '10.conflist'), 'file')).toEqual([]);
  // No directory can have such a name, and the files beside it have nothing to do with it.
  expect(findPluginFiles(path.join(dir, '10.conflist'), 'x'.repeat(300))).toEqual([]);
});

test('findConfFiles() treats a missing directory as empty', () => {
  expect(findConfFiles(path.join(dir, 'none'))).toEqual([]);
});
