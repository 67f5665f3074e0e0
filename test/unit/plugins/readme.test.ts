// Do the option tables of the plugins' READMEs say what the schemas say?
import { describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadAbout, PLUGIN_NAMES, RUNNER_NAME } from '../../../plugins/registry.ts';

const PLUGINS = join(import.meta.dir, '../../../plugins');

const TABLE_HEAD = '| name | type | default | meaning |\n|---|---|---|---|\n';

/** Meaning by option name, from the README's option tables. */
function documented(plugin: string): Map<string, string> {
  const readme = readFileSync(join(PLUGINS, plugin, 'README.md'), 'utf8');
  const tables = readme.split(TABLE_HEAD).slice(1);
  const rows = tables.flatMap(text => text.split('\n\n')[0]?.split('\n') ?? []);
  return new Map(
    rows.flatMap(row => {
      const [, name, , , meaning] = row.split(/(?<!\\)\|/).map(cell => cell.trim());
      return name && meaning ? [[name.replaceAll('`', ''), meaning]] : [];
    }),
  );
}

/** Doc comment by field name, from the schema in config.ts; fields without one belong to the protocol. */
function declared(plugin: string): Map<string, string> {
  const source = readFileSync(join(PLUGINS, plugin, 'config.ts'), 'utf8');
  const fields = source.matchAll(/\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*(\w+): z\./g);
  // A capability may repeat the name of an option further down.
  return new Map(
    Array.from(fields, ([, words = '', name = '']) => [name, oneLine(words)] as const).reverse(),
  );
}

function oneLine(comment: string): string {
  return comment
    .replace(/\n\s*\* ?/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

describe.each([...PLUGIN_NAMES, RUNNER_NAME])('README of %s', plugin => {
  const fields = declared(plugin);

  test('mentions every option of the schema', () => {
    const readme = readFileSync(join(PLUGINS, plugin, 'README.md'), 'utf8');
    expect([...fields.keys()].filter(name => !readme.includes(`\`${name}`))).toEqual([]);
  });

  test('begins with a configuration of the plugin', () => {
    const readme = readFileSync(join(PLUGINS, plugin, 'README.md'), 'utf8');
    const example = JSON.parse(/^```json\n(.*?)^```$/ms.exec(readme)?.[1] ?? 'null');
    const entries: { type: string }[] = example?.plugins ?? [example];
    expect(entries.map(({ type }) => type)).toContain(plugin);
  });

  test('describes each option of its tables as the schema does', () => {
    for (const [name, meaning] of documented(plugin)) {
      if (fields.has(name)) expect([name, meaning]).toEqual([name, fields.get(name) ?? '']);
    }
  });
});

test('the table of the plugins says what each says of itself', async () => {
  const page = readFileSync(join(PLUGINS, 'README.md'), 'utf8');
  for (const name of PLUGIN_NAMES) {
    const { summary } = (await loadAbout(name)) ?? {};
    expect(page).toContain(`](${name}/README.md) |`);
    expect([name, page.includes(`| ${summary} |`)]).toEqual([name, true]);
  }
});
