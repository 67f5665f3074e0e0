// Is every line of "Who may do what" in src/README.md held by a test that is there?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from '../helpers/source-tree.ts';

const README = fs.readFileSync(path.join(ROOT, 'src/README.md'), 'utf8');
const [, section = ''] = /^## Who may do what\n(.*?)^## /ms.exec(README) ?? [];
const rows = section.split('\n').filter(line => /^\| (?!door \|)[^-]/.test(line));

test('"Who may do what" has a test for every door', () => {
  expect(rows.length).toBeGreaterThan(10);
  const bare = rows.filter(row => row.split(' | ').length !== 5 || !heldBy(row).length);
  expect(bare).toEqual([]);
});

test.each(rows.flatMap(heldBy))('"Who may do what" names %s "%s", which is there', (file, title) => {
  expect(fs.existsSync(path.join(ROOT, file))).toBe(true);
  expect(fs.readFileSync(path.join(ROOT, file), 'utf8').replaceAll("\\'", "'")).toContain(title);
});

/** Files and titles in the last column. */
function heldBy(row: string): [file: string, title: string][] {
  return Array.from(row.matchAll(/`(test\/[\w./-]+)` "([^"]+)"/g), ([, file = '', title = '']) => [
    file,
    title,
  ]);
}
