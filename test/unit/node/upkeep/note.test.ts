import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  becomeKeeper,
  findUpkeep,
  isKept,
  isStillSame,
  listUpkeep,
  putUpkeep,
  removeUpkeep,
  type UpkeepNote,
  upkeepLister,
} from '../../../../src/node/upkeep/note.ts';
import { askStarved } from '../../../helpers/starved.ts';

let dir = '';
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-upkeep-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

const OWNER = { network: 'lan', containerId: 'web', ifname: 'eth0' };

function note(more: Partial<UpkeepNote> = {}): UpkeepNote {
  return {
    ...OWNER,
    id: 'a',
    boot: 'b1',
    dueAt: 5,
    call: { env: {}, stdin: '{}' },
    state: { n: 1 },
    ...more,
  };
}

test('a note is found by its attachment, replaced and removed', () => {
  expect(findUpkeep(dir, 'keeps', OWNER)).toBeUndefined();
  putUpkeep(dir, 'keeps', note());
  putUpkeep(dir, 'keeps', note({ id: 'b' }));
  expect(findUpkeep(dir, 'keeps', OWNER)).toEqual(note({ id: 'b' }));
  expect(listUpkeep(dir, 'keeps', 'lan')).toEqual([note({ id: 'b' })]);
  removeUpkeep(dir, 'keeps', OWNER);
  removeUpkeep(dir, 'keeps', OWNER);
  expect(listUpkeep(dir, 'keeps', 'lan')).toEqual([]);
});

test('notes about parts of one attachment are apart', () => {
  for (const part of [undefined, '6']) putUpkeep(dir, 'keeps', note({ part, id: `id of ${part}` }));
  expect(findUpkeep(dir, 'keeps', { ...OWNER, part: '6' })?.id).toBe('id of 6');
  removeUpkeep(dir, 'keeps', { ...OWNER, part: '6' });
  expect(listUpkeep(dir, 'keeps', 'lan').map(({ id }) => id)).toEqual(['id of undefined']);
});

test('only its owner can read a note: it has the request, which may hold secrets', () => {
  putUpkeep(dir, 'keeps', note());
  const file = path.join(dir, 'upkeep/keeps/lan/web:eth0');
  expect(fs.statSync(file).mode & 0o777).toBe(0o600);
});

test('the list names each plugin, follows changes and leaves out what is no note', () => {
  const list = upkeepLister(dir);
  expect(list()).toEqual([]);
  putUpkeep(dir, 'keeps', note());
  putUpkeep(dir, 'other', note({ containerId: 'db' }));
  fs.writeFileSync(path.join(dir, 'upkeep/other/lan/half'), '{"network":');
  fs.writeFileSync(path.join(dir, 'upkeep/lock'), '');
  const names = () => list().map(({ plugin, note: { containerId } }) => `${plugin} ${containerId}`);
  expect(names().sort()).toEqual(['keeps web', 'other db']);
  putUpkeep(dir, 'keeps', note({ dueAt: 9 }));
  expect(list().find(({ plugin }) => plugin === 'keeps')?.note.dueAt).toBe(9);
  removeUpkeep(dir, 'other', { ...OWNER, containerId: 'db' });
  expect(list()).toHaveLength(1);
});

test('notes are not missing for want of descriptors, and are there once there are some', async () => {
  putUpkeep(dir, 'keeps', note());
  expect((await askStarved(dir)).map(({ notes }) => notes)).toEqual([
    ['Cannot list notes', 'Cannot read note', 'Cannot list notes'],
    ['1', 'a', '1'],
  ]);
});

test('another boot, namespace or generation is another attachment; an unknown generation is not', () => {
  const own = { boot: 'b1', generation: 'g1', netnsCookie: '7' };
  expect(isStillSame(own, { ...own })).toBe(true);
  expect(isStillSame(own, { boot: 'b1', netnsCookie: '7' })).toBe(true);
  for (const other of [{ boot: 'b2' }, { generation: 'g2' }, { netnsCookie: '8' }])
    expect(isStillSame(own, { ...own, ...other })).toBe(false);
  expect(isStillSame(own, { boot: 'b1', generation: 'g1' })).toBe(false);
});

test('one process keeps at a time', () => {
  expect(isKept(dir)).toBe(false);
  const release = becomeKeeper(dir);
  expect(release).toBeDefined();
  expect(becomeKeeper(dir)).toBeUndefined();
  expect(isKept(dir)).toBe(true);
  release?.();
  expect(isKept(dir)).toBe(false);
});
