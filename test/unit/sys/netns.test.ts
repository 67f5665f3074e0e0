// Is a network namespace told from other files, and found again by identity? Entering one is tested in test/netns.
import { describe, expect, test } from 'bun:test';
import {
  closeNetns,
  findNetns,
  openNetns,
  openOwnNetns,
  ownNetns,
  sameNetns,
} from '../../../src/sys/netns.ts';

describe('openNetns()', () => {
  test('opens one namespace through several paths', () => {
    const [own, self] = [openOwnNetns(), openNetns(`/proc/${process.pid}/ns/net`)];
    expect(sameNetns(own, self)).toBe(true);
    expect(self.fd).not.toBe(own.fd);
    closeNetns(own);
    closeNetns(self);
  });

  test('refuses files of another kind', () => {
    const refusal = (path: string) =>
      `Cannot use "${path}" as network namespace: it is a file of another kind`;
    for (const path of ['/dev/null', '/proc/self/ns/mnt', '/etc/passwd']) {
      expect(() => openNetns(path)).toThrow(refusal(path));
    }
  });

  test('reports a missing path', () => {
    expect(() => openNetns('/nonexistent/ns')).toThrow(
      'Cannot open network namespace "/nonexistent/ns": no such object (ENOENT)',
    );
  });
});

test('ownNetns() shows the namespace of the thread', () => {
  const own = openOwnNetns();
  expect(sameNetns(ownNetns(), own)).toBe(true);
  closeNetns(own);
});

test('findNetns() returns nothing for paths that are empty, missing or something else', () => {
  expect([findNetns(''), findNetns('/nonexistent/ns'), findNetns('/dev/null')]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});
