// Is the habit named that broke the JSON?

import { describe, expect, test } from 'bun:test';
import * as z from 'zod/mini';
import { adviseOnSyntax, findShapeProblems, findUnknownKeys } from '../../../../src/cli/validate/document.ts';
import { findSyntaxProblem } from '../../../../src/cni/json-place.ts';

test.each([
  ['{"a":1,}', '; JSON has no comma after the last value'],
  ['[1,2,\n]', '; JSON has no comma after the last value'],
  ['{"a":1 "b":2}', '; a comma is missing before it'],
  ['[{"type":"bridge"}\n{"type":"portmap"}]', '; a comma is missing before it'],
  ['{// c\n"a":1}', '; JSON has no comments'],
  ['{"a":1} # c', '; JSON has no comments'],
  ["{'a':1}", '; JSON wants double quotes'],
  ['{a:1}', '; JSON wants keys in double quotes'],
  ['\ufeff{"a":1}', '; save the file without a byte order mark'],
  ['{"a":tru}', ''],
  ['{"a":1', ''],
])('%p: %p', (text, advice) => {
  const problem = findSyntaxProblem(text);
  expect(problem && adviseOnSyntax(text, problem)).toBe(advice);
});

const Schema = z.looseObject({
  type: z.string(),
  mtu: z.optional(z.int()),
  flags: z.optional(z.record(z.string(), z.boolean())),
  any: z.optional(z.unknown()),
  nested: z.optional(z.looseObject({ list: z._default(z.array(z.object({ name: z.string() })), []) })),
});

describe('findShapeProblems()', () => {
  test('finds all problems, each with its path', () => {
    const value = { type: 5, mtu: 'x', flags: { a: 1 }, nested: { list: [{ name: 'a' }, {}] } };
    expect(findShapeProblems(Schema, value)).toEqual([
      { path: ['type'], message: '"type" must be of type string, found 5' },
      { path: ['mtu'], message: '"mtu" must be of type number, found "x"' },
      { path: ['flags', 'a'], message: '"flags.a" must be of type boolean, found 1' },
      {
        path: ['nested', 'list', 1, 'name'],
        message: '"nested.list[1].name" must be of type string, it is missing',
      },
    ]);
  });

  test('suggests a similar name for a missing key', () => {
    const [problem] = findShapeProblems(Schema, { typ: 'bridge' });
    expect(problem?.message).toBe('"type" must be of type string, it is missing; is "typ" a typo?');
  });

  test('accepts keys in any letter case unless asked otherwise', () => {
    expect(findShapeProblems(Schema, { Type: 'a', MTU: 1 })).toEqual([]);
    expect(findShapeProblems(Schema, { Type: 'a' }, { exact: true })).toHaveLength(1);
  });
});

describe('findUnknownKeys()', () => {
  const keys = (
    value: unknown,
    ...rest: Parameters<typeof findUnknownKeys> extends [unknown, unknown, ...infer R] ? R : never
  ) => findUnknownKeys([Schema], value, ...rest).map(({ path }) => path.join('.'));

  test('finds unknown keys at every depth', () => {
    expect(keys({ type: 'a', mtuu: 1, nested: { lst: [], list: [{ nam: 1 }] } })).toEqual([
      'mtuu',
      'nested.lst',
      'nested.list.0.nam',
    ]);
  });

  test('names the most similar key', () => {
    expect(findUnknownKeys([Schema], { mtuu: 1 })).toEqual([
      { path: ['mtuu'], message: 'key "mtuu" is not known; did you mean "mtu"?' },
    ]);
  });

  test('skips objects that may contain anything, comments, and keys with a namespace', () => {
    const value = {
      any: { x: 1 },
      flags: { x: true },
      _note: '',
      $schema: '',
      '//': '',
      'example.com/key': 1,
    };
    expect(keys(value)).toEqual([]);
    expect(keys({ nested: { x: 1 } }, { open: ['nested'] })).toEqual([]);
  });

  test('accepts a key that one of several schemas has', () => {
    const Other = z.looseObject({ nested: z.optional(z.looseObject({ more: z.string() })), dns: z.string() });
    expect(findUnknownKeys([Schema, Other], { dns: '', nested: { more: '', list: [], x: 1 } })).toMatchObject(
      [{ path: ['nested', 'x'] }],
    );
  });

  test('accepts keys in any letter case unless asked otherwise', () => {
    expect(keys({ MTU: 1 })).toEqual([]);
    expect(keys({ MTU: 1 }, { exact: true })).toEqual(['MTU']);
  });
});
