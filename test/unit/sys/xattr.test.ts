import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findXattr, setXattr } from '../../../src/sys/xattr.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'xattr-'));
const file = path.join(dir, 'file');
fs.writeFileSync(file, 'content');
afterAll(() => fs.rmSync(dir, { recursive: true }));

describe('setXattr() and findXattr()', () => {
  test('keep a text with the file, and the last one counts', () => {
    expect(findXattr(file, 'user.test')).toBeUndefined();
    expect(setXattr(file, 'user.test', 'one')).toBe(true);
    expect(setXattr(file, 'user.test', 'zwölf')).toBe(true);
    expect(findXattr(file, 'user.test')).toBe('zwölf');
    expect(findXattr(file, 'user.other')).toBeUndefined();
  });

  test('report a missing file and a name that is not permitted', () => {
    expect(setXattr(path.join(dir, 'gone'), 'user.test', 'x')).toBe(false);
    expect(findXattr(path.join(dir, 'gone'), 'user.test')).toBeUndefined();
    expect(setXattr(file, 'strange.name', 'x')).toBe(false);
  });
});
