// Is every door in src/THREATS.md held by tests that exist, and every row about multus?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from '../helpers/source-tree.ts';

const PAGE = fs.readFileSync(path.join(ROOT, 'src/THREATS.md'), 'utf8');
const doors = PAGE.split(/^## /m).slice(1);

test('src/THREATS.md names a test for every door', () => {
  expect(doors.length).toBeGreaterThan(10);
  const bare = doors.filter(door => !door.includes('\nIt must not:\n') || heldBy(door).length === 0);
  expect(bare).toEqual([]);
});

/** What is the same as in multus, and what is not. */
const rows =
  fs
    .readFileSync(path.join(ROOT, 'plugins/catena/MULTUS.md'), 'utf8')
    .match(/^\| (?!feature|section).+\|$/gm) ?? [];

test('plugins/catena/MULTUS.md names a test in every row but for what is absent', () => {
  expect(rows.length).toBeGreaterThan(40);
  const bare = rows.filter(row => testsIn(row).length === 0 && !/^\|[^|]+\| absent/.test(row));
  expect(bare).toEqual([]);
});

test.each(rows.flatMap(testsIn))('plugins/catena/MULTUS.md names %s "%s", which exists', expectTest);

test.each(doors.flatMap(heldBy))('src/THREATS.md names %s "%s", which exists', expectTest);

function expectTest(file: string, title: string): void {
  expect(fs.existsSync(path.join(ROOT, file))).toBe(true);
  expect(fs.readFileSync(path.join(ROOT, file), 'utf8').replaceAll("\\'", "'")).toContain(title);
}

/** The tests of a row. */
function testsIn(row: string): [file: string, title: string][] {
  return Array.from(row.matchAll(/`(test\/[\w./-]+)` "([^"]+)"/g), ([, file = '', title = '']) => [
    file,
    title,
  ]);
}

/** The lines of "Held by". */
function heldBy(door: string): [file: string, title: string][] {
  return Array.from(door.matchAll(/^\* `(test\/[\w./-]+)` "([^"]+)"$/gm), ([, file = '', title = '']) => [
    file,
    title,
  ]);
}
