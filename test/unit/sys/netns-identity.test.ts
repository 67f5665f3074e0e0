import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { compareNetns, findNetnsIdentity, identifyNetns } from '../../../src/sys/netns-identity.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-journal-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

describe('findNetnsIdentity()', () => {
  test('is the same for every path', () => {
    const link = path.join(dir, 'netns');
    fs.symlinkSync('/proc/self/ns/net', link);
    expect(findNetnsIdentity(link)).toBe(findNetnsIdentity(`/proc/${process.pid}/ns/net`) ?? 'none');
    expect(findNetnsIdentity('/proc/self/ns/uts')).not.toBe(findNetnsIdentity(link));
  });

  test('is undefined for a missing file', () => {
    expect(findNetnsIdentity('')).toBeUndefined();
    expect(findNetnsIdentity(path.join(dir, 'none'))).toBeUndefined();
    expect(findNetnsIdentity('/etc/passwd/none')).toBeUndefined();
  });
});

describe('compareNetns()', () => {
  test('distinguishes the same, another and no namespace', () => {
    const file = path.join(dir, 'netns');
    fs.writeFileSync(file, '');
    const netnsIdentity = findNetnsIdentity(file);
    expect(compareNetns(file, { netnsIdentity })).toBe('same');
    expect(compareNetns('/proc/self/ns/net', { netnsIdentity })).toBe('other');
    expect(compareNetns(path.join(dir, 'none'), { netnsIdentity })).toBe('gone');
    expect(compareNetns(path.join(dir, 'none'), { netnsIdentity: undefined })).toBe('same');
  });

  test('recognises by its cookie a new namespace with the device and inode of a former one', () => {
    const own = identifyNetns('/proc/self/ns/net');
    expect(own.netnsCookie).toMatch(/^[1-9]\d*$/);
    expect(compareNetns('/proc/thread-self/ns/net', own)).toBe('same');
    expect(compareNetns('/proc/self/ns/net', { ...own, netnsCookie: '18446744073709551615' })).toBe('other');
    // Records of earlier releases have none.
    expect(compareNetns('/proc/self/ns/net', { netnsIdentity: own.netnsIdentity })).toBe('same');
  });
});
