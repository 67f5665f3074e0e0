import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { writeProject } from '../../../src/template/write.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-write-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const FILES = new Map([
  ['a.txt', 'one'],
  ['src/deep/b.ts', 'two'],
]);

test('writeProject() creates the directory and all below it', () => {
  writeProject(path.join(dir, 'x/y'), FILES);
  expect(fs.readFileSync(path.join(dir, 'x/y/src/deep/b.ts'), 'utf8')).toBe('two');
});

test('writeProject() changes nothing in a directory that is not empty', () => {
  fs.writeFileSync(path.join(dir, '.hidden'), '');
  expect(() => writeProject(dir, FILES)).toThrow(
    `Cannot make a project in "${dir}": it already contains ".hidden"`,
  );
  expect(fs.readdirSync(dir)).toEqual(['.hidden']);
});

test('writeProject() reports why it fails', () => {
  fs.writeFileSync(path.join(dir, 'file'), '');
  expect(() => writeProject(path.join(dir, 'file'), FILES)).toThrow('ENOTDIR');
  expect(() => writeProject('/proc/nowhere', FILES)).toThrow('Cannot write to "/proc/nowhere"');
});
