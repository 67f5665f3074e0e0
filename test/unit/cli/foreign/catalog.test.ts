// Do tools know a plugin of another author by the schema beside its executable?

import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { SCHEMAS } from '../../../../plugins/build/published-schemas.ts';
import { KNOWN_TYPES, loadAbout } from '../../../../plugins/registry.ts';
import { parseNetwork } from '../../../../src/chain/config/conflist.ts';
import { entrySchema, withForeign } from '../../../../src/cli/foreign/catalog.ts';
import { findShapeProblems, findUnknownKeys } from '../../../../src/cli/validate/document.ts';
import { NO_EXECUTABLES } from '../../../../src/cli/validate/executables.ts';
import { explainList } from '../../../../src/cli/validate/explain.ts';
import { validatePath } from '../../../../src/cli/validate/validate.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import type { PluginCatalog } from '../../../../src/cni/plugin-about.ts';

const OURS: PluginCatalog = { types: KNOWN_TYPES, find: loadAbout, schemas: async () => SCHEMAS };

const MOTD = {
  description: 'greets',
  'x-catena': { kind: 'meta', capabilities: ['aliases'] },
  type: 'object',
  properties: {
    greeting: { $ref: '#/$defs/text', description: 'What it says.', default: 'hello' },
    search: { type: 'array', items: { type: 'string' }, description: 'Domains.' },
  },
  $defs: { text: { type: 'string' } },
};

const LEASER = {
  description: 'assigns addresses of a list',
  'x-catena': { kind: 'ipam' },
  properties: {
    ipam: { type: 'object', properties: { type: {}, pool: { type: 'integer', description: 'Which.' } } },
  },
};

let dir: string;
let far: string;
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-foreign-'));
  far = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-foreign-'));
  const write = (name: string, schema: unknown, home = dir) => {
    fs.writeFileSync(path.join(home, name), '');
    const text = typeof schema === 'string' ? schema : JSON.stringify(schema);
    fs.writeFileSync(path.join(home, `${name}.schema.json`), text);
  };
  write('motd', MOTD);
  write('leaser', LEASER);
  write('bridge', { ...MOTD, description: 'not ours' });
  write('broken', '{');
  write('kindless', { properties: {} });
  const depth = 20_000;
  const nested = `${'{"items":'.repeat(depth)}1${'}'.repeat(depth)}`;
  write(
    'deep',
    `{"x-catena":{"kind":"meta"},"properties":{"a":${nested.replaceAll('{', '{"type":"array",')}}}`,
  );
  fs.writeFileSync(path.join(dir, 'bare'), '');
  write('bare', MOTD, far);
  fs.writeFileSync(path.join(far, 'planned.schema.json'), JSON.stringify(MOTD));
});
afterAll(() => {
  for (const one of [dir, far]) fs.rmSync(one, { recursive: true });
});

function open() {
  const problems: string[] = [];
  return { problems, catalog: withForeign(OURS, [dir, far], ({ message }) => problems.push(message)) };
}

test('the schema beside the executable that would run counts, and ours is ours', async () => {
  const { catalog, problems } = open();
  expect(await catalog.find('motd')).toMatchObject({
    kind: 'meta',
    summary: 'greets',
    capabilities: ['aliases'],
  });
  expect(await catalog.find('leaser')).toMatchObject({ kind: 'ipam', capabilities: [] });
  // Its executable in the first directory has none.
  expect(catalog.find('bare')).toBeUndefined();
  // No executable yet.
  expect(await catalog.find('planned')).toMatchObject({ kind: 'meta' });
  expect(await catalog.find('bridge')).toBe(await loadAbout('bridge'));
  for (const type of ['nothing', '../motd', 'a\0b']) expect(catalog.find(type)).toBeUndefined();
  expect(problems).toEqual([]);
});

test('one that cannot be used is told once, with its file', () => {
  const { catalog, problems } = open();
  for (const type of ['broken', 'kindless', 'deep', 'broken']) expect(catalog.find(type)).toBeUndefined();
  expect(problems).toEqual([
    expect.stringContaining(`Cannot decode schema "${dir}/broken.schema.json": `),
    `Cannot use schema "${dir}/kindless.schema.json": "x-catena" must be of type object, it is missing`,
    `Cannot use schema "${dir}/deep.schema.json": it has more than 100 levels`,
  ]);
});

test('validate examines the options', async () => {
  const list = {
    cniVersion: '1.1.0',
    name: 'net',
    plugins: [
      { type: 'bridge', ipam: { type: 'leaser', pool: 'x', pol: 1 } },
      { type: 'motd', greeting: 5, serch: ['a'], capabilities: { aliases: true, portMappings: true } },
    ],
  };
  const file = path.join(dir, 'net.conflist');
  fs.writeFileSync(file, JSON.stringify(list));
  const { findings } = await validatePath(file, open().catalog, NO_EXECUTABLES);
  expect(findings.map(({ severity, rule, message }) => [severity, rule, message])).toEqual([
    ['error', 'shape', '"ipam.pool" must be of type number, found "x"'],
    ['warning', 'unknown-key', 'key "pol" is not known; did you mean "pool"?'],
    ['error', 'shape', '"greeting" must be of type string, found 5'],
    ['warning', 'unknown-key', 'key "serch" is not known; did you mean "search"?'],
    ['warning', 'capability', '"motd" does not know capability "portMappings"'],
  ]);
});

test('a plugin that needs an earlier one is not first', async () => {
  const file = path.join(dir, 'first.conflist');
  fs.writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'motd' }] }));
  const { findings } = await validatePath(file, open().catalog, NO_EXECUTABLES);
  expect(findings).toEqual([expect.objectContaining({ rule: 'order', severity: 'error' })]);
});

test('explain has its words', async () => {
  const list = parseNetwork(
    JSON.stringify({
      cniVersion: '1.1.0',
      name: 'net',
      plugins: [
        { type: 'bridge', ipam: { type: 'leaser', pool: 7 } },
        { type: 'motd', search: [] },
      ],
    }),
  );
  const { plugins } = await explainList(list, open().catalog);
  expect(plugins[0]?.ipam).toMatchObject({
    kind: 'ipam',
    options: [{ name: 'pool', value: 7, meaning: 'Which.' }],
  });
  expect(plugins[1]).toMatchObject({
    ...{ kind: 'meta', summary: 'greets', options: [{ name: 'search', meaning: 'Domains.' }] },
    defaults: [{ name: 'greeting', value: 'hello', meaning: 'What it says.' }],
  });
});

test('editors get one schema of lists, by the word of a validator that is not ours', async () => {
  const { conflist, motd, bridge } = await open().catalog.schemas();
  expect([motd, bridge]).toEqual([MOTD, SCHEMAS.bridge]);
  const ajv = new Ajv2020({ allErrors: true, strict: false });
  const check = ajv.compile(conflist ?? {});
  const errors = (...plugins: object[]) => {
    check({ cniVersion: '1.1.0', name: 'net', plugins });
    return check.errors?.map(({ instancePath, keyword }) => `${instancePath} ${keyword}`) ?? [];
  };
  expect(
    errors({ type: 'bridge', ipam: { type: 'leaser', pool: 7 } }, { type: 'motd', greeting: 'x' }),
  ).toEqual([]);
  expect(errors({ type: 'x', ipam: { type: 'leaser', pool: '7' } })).toContain('/plugins/0/ipam/pool type');
  expect(errors({ type: 'motd', greeting: 7 })).toContain('/plugins/0/greeting type');
});

const problems = (properties: JsonObject, value: object, more: JsonObject = {}): string[] =>
  findShapeProblems(entrySchema({ type: 'object', properties, ...more }), { type: 'x', ...value }).map(
    ({ message }) => message,
  );

const NODE = {
  properties: { name: { type: 'string' }, children: { type: 'array', items: { $ref: '#/$defs/node' } } },
};

describe('entrySchema()', () => {
  test.each<[string, JsonObject, object, string[]]>([
    ['a text', { a: { type: 'string' } }, { a: 5 }, ['"a" must be of type string, found 5']],
    ['a whole number', { a: { type: 'integer' } }, { a: 1.5 }, ['"a" must be of type int, found 1.5']],
    ['a limit', { a: { type: 'number', maximum: 4 } }, { a: 5 }, ['"a" must be at most 4, found 5']],
    [
      'an open limit',
      { a: { type: 'number', exclusiveMinimum: 0 } },
      { a: 0 },
      ['"a" must be above 0, found 0'],
    ],
    [
      'an enumeration',
      { a: { enum: ['tcp', 'udp'] } },
      { a: 'sctp' },
      ['"a" must be one of "tcp", "udp", found "sctp"'],
    ],
    ['a constant', { a: { const: 1 } }, { a: 2 }, ['"a" must be one of 1, found 2']],
    ['a pattern', { a: { type: 'string', pattern: '^a' } }, { a: 'b' }, ['"a" must match ^a, found "b"']],
    [
      'an element',
      { a: { type: 'array', items: { type: 'string' } } },
      { a: [1] },
      ['"a[0]" must be of type string, found 1'],
    ],
    ['a length', { a: { type: 'array', minItems: 1 } }, { a: [] }, ['"a" must have at least 1, found []']],
    [
      'an alternative',
      { a: { anyOf: [{ type: 'string' }, { type: 'integer' }] } },
      { a: true },
      ['"a" must be of type string or integer, found true'],
    ],
    [
      'several types',
      { a: { type: ['string', 'null'] } },
      { a: 1 },
      ['"a" must be of type string or null, found 1'],
    ],
    [
      'a map',
      { a: { type: 'object', additionalProperties: { type: 'string' } } },
      { a: { b: 1 } },
      ['"a.b" must be of type string, found 1'],
    ],
    ['what must not be', { a: false }, { a: 1 }, ['"a" must be absent, found 1']],
  ])('refuses %s', (_, properties, value, expected) => {
    expect(problems(properties, value)).toEqual(expected);
  });

  test('asks for what is required, and follows references, also those that end in themselves', () => {
    const more = { required: ['a'], $defs: { node: { type: 'object', ...NODE }, text: { type: 'string' } } };
    const properties = { a: { $ref: '#/$defs/text' }, tree: { $ref: '#/$defs/node' } };
    expect(problems(properties, {}, more)).toEqual(['"a" must be of type string, it is missing']);
    expect(problems(properties, { a: '', tree: { children: [{ name: 1, children: [{}] }] } }, more)).toEqual(
      [],
    );
    expect(problems(properties, { a: '', tree: { name: 1 } }, more)).toEqual([
      '"tree.name" must be of type string, found 1',
    ]);
  });

  test('passes what it cannot express', () => {
    const odd = [{ $ref: 'https://example.org/x' }, { not: {} }, { pattern: '(' }, { type: 'date' }, true, 7];
    for (const a of odd) expect(problems({ a }, { a: 'x' })).toEqual([]);
    expect(problems({ a: { type: 'string', pattern: '(' } }, { a: 'x' })).toEqual([]);
  });

  test('knows the keys of every entry, and those of the plugin in any letter case', () => {
    const schema = entrySchema({ properties: { search: { type: 'array' } } });
    const entry = { type: 'x', capabilities: {}, ipam: { type: 'y' }, Search: [], serch: 1 };
    expect(findUnknownKeys([schema], entry)).toEqual([
      { path: ['serch'], message: 'key "serch" is not known; did you mean "search"?' },
    ]);
  });
});

describe('our own schemas, read as those of another author', () => {
  const ajv = new Ajv2020({ strict: false, logger: false });
  const values: unknown[] = [
    '',
    'x',
    '10.1.0.0/16',
    'auto',
    0,
    -1,
    1.5,
    1400,
    true,
    null,
    [],
    [[]],
    ['x'],
    {},
  ];

  test.each(Object.keys(SCHEMAS).filter(name => name !== 'conflist'))(
    '%s refuses no more than ajv does',
    type => {
      const schema = SCHEMAS[type] as JsonObject;
      const check = ajv.compile(schema);
      const own = entrySchema(schema);
      for (const key of Object.keys(schema.properties as JsonObject)) {
        for (const value of values) {
          const entry = { type, [key]: value };
          if (key !== 'type' && check(entry))
            expect([key, value, findShapeProblems(own, entry)]).toEqual([key, value, []]);
        }
      }
    },
  );
});
