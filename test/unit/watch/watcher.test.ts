// Is an attachment left alone whose runtime has begun to delete it, but not for ever?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { forgetGeneration, noteGeneration } from '../../../src/attachments/generation.ts';
import type { WatchedAttachment } from '../../../src/watch/attachments.ts';
import { BegunDeletions } from '../../../src/watch/watcher.ts';

const ID = { network: 'net', containerId: 'c1', ifname: 'eth0' };

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(tmpdir(), 'cat-begun-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const note = () => noteGeneration(dir, ID, { renew: true, boot: 'this' });
const attached = (stateDir?: string) => ({ ...ID, stateDir }) as unknown as WatchedAttachment;
const begun = (one: WatchedAttachment) => {
  const deletions = new BegunDeletions({ env: { CATENA_RUN_DIR: dir } });
  deletions.look([one]);
  return deletions;
};

test('from the moment when its note is gone, for as long as a DEL may take', () => {
  note();
  const one = attached();
  const deletions = begun(one);
  expect(deletions.has(one, 1_000)).toBe(false);
  forgetGeneration(dir, ID);
  expect(deletions.has(one, 2_000)).toBe(true);
  deletions.look([one]);
  expect(deletions.has(one, 61_000)).toBe(true);
  expect(deletions.has(one, 62_000)).toBe(false);
});

test('also while a later ADD of that name has begun', () => {
  note();
  const one = attached();
  const deletions = begun(one);
  note();
  expect(deletions.has(one, 1_000)).toBe(true);
  // When that has ended, its file is another one.
  const next = attached();
  deletions.look([next]);
  expect(deletions.has(next, 2_000)).toBe(false);
});

test('not without a note, and not if a journal tells', () => {
  const one = attached();
  expect(begun(one).has(one, 1_000)).toBe(false);
  note();
  const own = attached('/state');
  const deletions = begun(own);
  forgetGeneration(dir, ID);
  expect(deletions.has(own, 1_000)).toBe(false);
});
