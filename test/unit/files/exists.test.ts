// Is "there is no such file" told from "it cannot be told"?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileExists } from '../../../src/files/exists.ts';

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
