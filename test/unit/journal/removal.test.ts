// Does a mark of a removal count exactly as long as its process deletes the attachment?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { isBeingRemoved, markRemoval, sweepRemovals } from '../../../src/journal/removal.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-removal-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
const LONG = { network: 'n'.repeat(200), containerId: 'c'.repeat(190), ifname: 'eth0' };
const marks = () => fs.readdirSync(`${dir}/removals`);

test.each([ID, LONG])('a mark counts until it is removed, for its own attachment', id => {
  expect(isBeingRemoved(dir, id)).toBe(false);
  const unmark = markRemoval(dir, id);
  expect(isBeingRemoved(dir, id)).toBe(true);
  expect(isBeingRemoved(dir, { ...id, ifname: 'eth1' })).toBe(false);
  sweepRemovals(dir);
  expect(isBeingRemoved(dir, id)).toBe(true);
  unmark();
  expect(isBeingRemoved(dir, id)).toBe(false);
  expect(marks()).toEqual([]);
});

test('the mark of a killed process does not count, and is replaced or removed', () => {
  markRemoval(dir, ID);
  const [name = ''] = marks();
  const dead = () => {
    fs.rmSync(`${dir}/removals/${name}`, { force: true });
    fs.symlinkSync(`999999999 1 ${fs.readlinkSync('/proc/self/ns/pid')}`, `${dir}/removals/${name}`);
  };
  dead();
  expect(isBeingRemoved(dir, ID)).toBe(false);
  markRemoval(dir, ID);
  expect(isBeingRemoved(dir, ID)).toBe(true);
  dead();
  sweepRemovals(dir);
  expect(marks()).toEqual([]);
});

test('the mark that another removal has left is not removed by the end of this one', () => {
  const first = markRemoval(dir, ID);
  markRemoval(dir, ID)();
  expect(isBeingRemoved(dir, ID)).toBe(true);
  first();
});

test('a run directory that cannot be written is no obstacle', () => {
  expect(() => markRemoval('/proc/nowhere', ID)()).not.toThrow();
});
