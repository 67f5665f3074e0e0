import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { compareNetns, findNetnsIdentity } from '../../../src/journal/netns-identity.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-journal-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

describe('findNetnsIdentity()', () => {
  test('is the same by whatever path', () => {
    const link = path.join(dir, 'netns');
    fs.symlinkSync('/proc/self/ns/net', link);
    expect(findNetnsIdentity(link)).toBe(findNetnsIdentity(`/proc/${process.pid}/ns/net`) ?? 'none');
    expect(findNetnsIdentity('/proc/self/ns/uts')).not.toBe(findNetnsIdentity(link));
  });

  test('is undefined where there is nothing', () => {
    expect(findNetnsIdentity('')).toBeUndefined();
    expect(findNetnsIdentity(path.join(dir, 'none'))).toBeUndefined();
    expect(findNetnsIdentity('/etc/passwd/none')).toBeUndefined();
  });
});

describe('compareNetns()', () => {
  test('tells the same, another one and none apart', () => {
    const file = path.join(dir, 'netns');
    fs.writeFileSync(file, '');
    const identity = findNetnsIdentity(file);
    expect(compareNetns(file, identity)).toBe('same');
    expect(compareNetns('/proc/self/ns/net', identity)).toBe('other');
    expect(compareNetns(path.join(dir, 'none'), identity)).toBe('gone');
    expect(compareNetns(path.join(dir, 'none'), undefined)).toBe('same');
  });
});
