// Is every door in src/THREATS.md held by tests that exist?
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

test.each(doors.flatMap(heldBy))('src/THREATS.md names %s "%s", which exists', (file, title) => {
  expect(fs.existsSync(path.join(ROOT, file))).toBe(true);
  expect(fs.readFileSync(path.join(ROOT, file), 'utf8').replaceAll("\\'", "'")).toContain(title);
});

/** The lines of "Held by". */
function heldBy(door: string): [file: string, title: string][] {
  return Array.from(door.matchAll(/^\* `(test\/[\w./-]+)` "([^"]+)"$/gm), ([, file = '', title = '']) => [
    file,
    title,
  ]);
}
