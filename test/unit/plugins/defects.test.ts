// Does every test exist that the table of the reference's defects names, and does each plugin of devices have a row?
import { expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const TESTS = join(import.meta.dir, '../..');
const ROWS = readFileSync(join(TESTS, 'twin/DEFECTS.md'), 'utf8')
  .split('\n')
  .map(line => line.split('|').map(cell => cell.trim()))
  .filter(cells => cells.length === 6 && /^`netns\/[a-z-]+`$/.test(cells[3] ?? ''))
  .map(([, plugin = '', , file = '', title = '']) => ({ plugin, file: file.replaceAll('`', ''), title }));

test('the table has rows for each plugin', () => {
  const plugins = [...new Set(ROWS.map(({ plugin }) => plugin))];
  expect(plugins).toEqual(['macvlan', 'ipvlan', 'vlan', 'host-device', 'dummy', 'tap', 'vrf', 'dhcp']);
});

test.each(ROWS)('$plugin: "$title" exists in $file', ({ plugin, file, title }) => {
  const source = readFileSync(join(TESTS, `${file}.test.ts`), 'utf8');
  // A title is a whole literal; those that run for several versions, or for several plugins, begin with a placeholder.
  const literal = title.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  expect({ plugin, found: new RegExp(`['\`](\\[[^\\]]+\\] )?${literal}['\`]`).test(source) }).toEqual({
    plugin,
    found: true,
  });
});
