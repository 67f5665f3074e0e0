// Does a reader wait for what is no file?

import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs, { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os, { tmpdir } from 'node:os';
import path, { join } from 'node:path';
import { fileExists, fileFailure, readIfThere, tryRead } from '../../../src/files/read-file.ts';

test('a FIFO is read as empty, instead of until a process writes to it', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-fifo-'));
  try {
    const fifo = path.join(dir, 'fifo');
    Bun.spawnSync(['mkfifo', fifo]);
    expect([readIfThere(fifo, 'file'), tryRead(fifo)]).toEqual(['', '']);
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});

let dir = '';

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'catena-exists-'));
  writeFileSync(join(dir, 'file'), '');
  mkdirSync(join(dir, 'directory'));
  symlinkSync('loop', join(dir, 'loop'));
  symlinkSync('nothing', join(dir, 'dangling'));
});

afterAll(() => rmSync(dir, { recursive: true, force: true }));

test.each([
  ['file', true],
  ['directory', true],
  ['absent', false],
  ['dangling', false],
  ['file/below', false],
])('%s: %p', (name, exists) => {
  expect(fileExists(join(dir, name))).toBe(exists);
});

test('any other failure is told, with the path and code 5', () => {
  expect(() => fileExists(join(dir, 'loop'))).toThrow(
    expect.objectContaining({
      code: 5,
      message: expect.stringContaining(`Cannot look for "${dir}/loop": ELOOP`),
    }),
  );
});

test('who may not write into the run directory of the host is told to use another one', () => {
  const cause = Object.assign(new Error('EACCES: permission denied, open'), {
    code: 'EACCES',
    syscall: 'open',
  });
  const adviceFor = (action: string, file: string) => fileFailure(action, file, cause).message.split('; ')[1];
  expect(adviceFor('lock', '/run/catena/a.lock')).toEndWith(
    'or run as root, or set CATENA_RUN_DIR to a directory of its own',
  );
  expect(adviceFor('list records in', '/run/catena/gc')).toEndWith('or run as root');
  expect(adviceFor('lock', '/srv/a.lock')).toEndWith('or run as root');
});
