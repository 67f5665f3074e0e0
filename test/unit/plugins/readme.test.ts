// Do the option tables of the links' READMEs say what the schemas say?
import { describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../../plugins/registry.ts';

const PLUGINS = join(import.meta.dir, '../../../plugins');

/** Meaning by option name, from the README's option table. */
function documented(plugin: string): Map<string, string> {
  const readme = readFileSync(join(PLUGINS, plugin, 'README.md'), 'utf8');
  const table =
    readme.split('| name | type | default | meaning |\n|---|---|---|---|\n')[1]?.split('\n\n')[0] ?? '';
  return new Map(
    table.split('\n').flatMap(line => {
      const [, name, , , meaning] = line.split(/(?<!\\)\|/).map(cell => cell.trim());
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

  test('says of each option in its table what the schema says', () => {
    for (const [name, meaning] of documented(plugin)) {
      if (fields.has(name)) expect([name, meaning]).toEqual([name, fields.get(name) ?? '']);
    }
  });
});
