import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { putFile, putOpenFile, writeNewFile } from '../../../src/files/put-file.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-files-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

describe('putFile()', () => {
  test('creates directories and the file for its owner only, and nothing else', () => {
    const file = path.join(dir, 'a/b/c');
    putFile(file, 'text');
    expect(fs.readFileSync(file, 'utf8')).toBe('text');
    const modes = [file, path.dirname(file)].map(one => fs.statSync(one).mode & 0o777);
    expect(modes).toEqual([0o600, 0o700]);
    expect(fs.readdirSync(path.dirname(file))).toEqual(['c']);
  });

  test('gives the name to a new file and does not change the old one', () => {
    const file = path.join(dir, 'a');
    putFile(file, 'old');
    fs.linkSync(file, path.join(dir, 'b'));
    putFile(file, 'new', { sync: true });
    expect(['a', 'b'].map(name => fs.readFileSync(path.join(dir, name), 'utf8'))).toEqual(['new', 'old']);
  });

  test('removes any file under a given temporary name', () => {
    const [file, unfinished] = [path.join(dir, 'a'), path.join(dir, 'a.new')];
    fs.writeFileSync(unfinished, 'left by a crash');
    putFile(file, 'new', { unfinished });
    expect([fs.readdirSync(dir), fs.readFileSync(file, 'utf8')]).toEqual([['a'], 'new']);
  });

  test.each([
    ['a directory', 'EISDIR', (file: string) => fs.mkdirSync(file)],
    ['a file instead of a directory', 'ENOTDIR', (file: string) => fs.writeFileSync(path.dirname(file), '')],
  ])('names the file that %s blocks, the reason and the remedy, and leaves nothing', (_, code, put) => {
    const parent = path.join(dir, 'sub');
    const file = path.join(parent, 'a');
    if (code === 'EISDIR') fs.mkdirSync(parent);
    put(file);
    const before = fs.readdirSync(dir, { recursive: true });
    const problem = `Cannot write record "${file}": ${code}: `;
    const attempt = () => putFile(file, 'text', { what: 'record' });
    expect(attempt).toThrow(problem);
    expect(attempt).toThrow('; remove the file at that path');
    expect(fs.readdirSync(dir, { recursive: true })).toEqual(before);
  });
});

describe('putOpenFile()', () => {
  test('leaves the file open for appending', () => {
    const file = path.join(dir, 'a');
    const fd = putOpenFile(file, 'one\n');
    fs.writeSync(fd, 'two\n');
    fs.closeSync(fd);
    expect(fs.readFileSync(file, 'utf8')).toBe('one\ntwo\n');
  });
});

describe('writeNewFile()', () => {
  test('overwrites nothing', () => {
    const file = path.join(dir, 'a');
    fs.symlinkSync(path.join(dir, 'elsewhere'), file);
    expect(() => writeNewFile(file, 'text')).toThrow('EEXIST');
    expect(fs.readdirSync(dir)).toEqual(['a']);
  });
});
