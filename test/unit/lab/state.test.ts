// How are files described?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { contentOf, readFiles } from '../../../src/lab/state.ts';
import { runOk } from '../../helpers/command.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-files-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const put = (name: string) => {
  fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
  fs.writeFileSync(path.join(dir, name), '');
};
const shapes = () => readFiles([dir], []).map(({ shape = '' }) => shape.slice(`file ${dir}/`.length));

describe('readFiles()', () => {
  test('finds files at every depth, except skipped ones', () => {
    for (const name of ['a', 'b/c', 'd/e']) put(name);
    const keys = readFiles([dir], [path.join(dir, 'b')]).map(({ key }) => key);
    expect(keys.sort()).toEqual([`file ${dir}/a`, `file ${dir}/d/e`]);
  });

  test('treats a missing directory as empty', () => {
    expect(readFiles([path.join(dir, 'none')], [])).toEqual([]);
  });

  test('gives files of one kind one shape, whatever addresses and ids are in their names', () => {
    for (const name of ['10.1.0.2', '10.1.0.31', 'fd00:1::2']) put(name);
    expect(new Set(shapes())).toEqual(new Set(['#']));
  });

  test('distinguishes a lock from a lease', () => {
    for (const name of ['lock', 'last_reserved_ip.0', '10.1.0.2']) put(name);
    expect(shapes().sort()).toEqual(['#', 'last_reserved_ip.#', 'lock']);
  });
});

test('contentOf() reads regular files only: the pipe that a plugin leaves has no writer', async () => {
  put('file');
  fs.symlinkSync('/dev/zero', path.join(dir, 'link'));
  await runOk(['mkfifo', path.join(dir, 'pipe')]);
  const found = ['file', 'link', 'pipe'].map(name => String(contentOf(path.join(dir, name))));
  expect(found).toEqual(['', 'link to /dev/zero', 'pipe']);
});
