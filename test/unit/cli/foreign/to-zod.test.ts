// Is a list examined by another author's schema as JSON Schema means it, and is nothing refused that the schema accepts?
import { describe, expect, test } from 'bun:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { SCHEMAS } from '../../../../plugins/build/published-schemas.ts';
import { entrySchema } from '../../../../src/cli/foreign/to-zod.ts';
import { findShapeProblems, findUnknownKeys } from '../../../../src/cli/validate/shape.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';

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
