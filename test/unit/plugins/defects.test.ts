// Does every test exist that the tables of defects and of verbs name, and does each plugin of devices have a row?
import { expect, test } from 'bun:test';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const TESTS = join(import.meta.dir, '../..');
const CELLS = readFileSync(join(TESTS, 'twin/DEFECTS.md'), 'utf8')
  .split('\n')
  .map(line => line.split('|').map(cell => cell.trim()));
const ROWS = CELLS.filter(cells => cells.length === 6 && /^`netns\/[a-z-]+`$/.test(cells[3] ?? '')).map(
  ([, plugin = '', , file = '', title = '']) => ({ plugin, file: file.replaceAll('`', ''), title }),
);

test('the table has rows for each plugin', () => {
  const plugins = [...new Set(ROWS.map(({ plugin }) => plugin))];
  expect(plugins).toEqual(['macvlan', 'ipvlan', 'vlan', 'host-device', 'dummy', 'tap', 'vrf', 'dhcp']);
});

test.each(ROWS)('$plugin: "$title" exists in $file', ({ plugin, file, title }) => {
  const source = readFileSync(join(TESTS, `${file}.test.ts`), 'utf8');
  // A title is a whole literal; those that run for several versions, or for several plugins, begin with a placeholder.
  const literal = title.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  expect({ plugin, found: new RegExp(`['"\`](\\[[^\\]]+\\] )?${literal}['"\`]`).test(source) }).toEqual({
    plugin,
    found: true,
  });
});

/** The table of verbs: its rows have seven cells. */
const VERB_ROWS = CELLS.filter(cells => cells.length === 9).slice(2);

test('the table of verbs has a row for each plugin that the table of defects has', () => {
  expect(VERB_ROWS.map(([, plugin]) => plugin)).toEqual([...new Set(ROWS.map(({ plugin }) => plugin))]);
});

test.each(VERB_ROWS)('%s%s: each file exists, calls the verb, and needs that kernel', (...cells) => {
  const [, plugin = '', kernel = '', life = '', gc = '', status = '', twins = '', mixes = ''] = cells;
  const calls = (file: string, verb: string): boolean => {
    if (file === 'no work')
      return readFileSync(`plugins/${plugin}/plugin.ts`, 'utf8').includes('nothingToDo');
    const path = file === 'conformance' ? 'e2e/conformance-plugins' : `netns/${file}`;
    return new RegExp(file === 'conformance' ? `${plugin}: ` : verb).test(
      readFileSync(join(TESTS, `${path}.test.ts`), 'utf8'),
    );
  };
  const verbs = { ADD: life, CHECK: life, DEL: life, GC: gc, STATUS: status };
  expect(Object.entries(verbs).filter(([verb, file]) => !calls(file, verb))).toEqual([]);
  const source = readFileSync(join(TESTS, `netns/${life}.test.ts`), 'utf8');
  const need =
    /(?:const NEEDED = |^ {2})requires(?:Link|Upper)Kind\('(\w+)'\)|requires(Vrf|VlanDevices)\(\)/m.exec(
      source,
    );
  const kind = (need?.[1] ?? need?.[2] ?? 'nothing').replace('Devices', '').toLowerCase();
  expect(kind).toBe(kernel.replaceAll('`', ''));
  expect(twins === 'none' || existsSync(join(TESTS, `twin/rows/${twins}.ts`))).toBe(true);
  const known = readFileSync(join(TESTS, 'twin/mixes.ts'), 'utf8');
  expect(mixes === 'none' || known.includes(`['${mixes}', `)).toBe(true);
});
