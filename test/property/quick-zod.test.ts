// Do the executables read every value as zod does, although they do not use zod for it?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import * as zod from 'zod/mini';
import * as full from '../../plugins/build/full-zod.ts';
import * as quick from '../../plugins/build/quick-zod.ts';
import { RUNS } from './arbitrary.ts';

type Zods = typeof zod;
/** Makes one schema of zod or of what stands in for it. */
type Make = (z: Zods) => zod.ZodMiniType;

const ROOT = path.resolve(import.meta.dir, '../..');

const checkedText = fc.constantFrom<Make>(
  z => z.string(),
  z => z.string().check(z.minLength(2)),
  z => z.string().check(z.regex(/^a/, 'must begin with a'), z.startsWith('a')),
  z => z.string().check(z.regex(/b/g)),
  z => z.string().check(z.refine(text => text !== 'ab', 'must not be ab')),
);
const scalar: fc.Arbitrary<Make> = fc.oneof(
  checkedText,
  fc.constantFrom<Make>(
    z => z.int(),
    z => z.int().check(z.minimum(0), z.maximum(10)),
    z => z.number(),
    z => z.number().check(z.positive()),
    z => z.boolean(),
    z => z.unknown(),
    z => z.literal('a'),
    z => z.enum(['a', 'ab']),
    z => z.custom<string>(value => typeof value === 'string'),
    z => z.tuple([z.string(), z.int()]),
  ),
);
const KEYS = ['a', 'b', 'toString', '__proto__', '1'];

const { schema } = fc.letrec<{ schema: Make; shape: Record<string, Make> }>(tie => ({
  shape: fc.dictionary(fc.constantFrom('a', 'b', 'c', '1'), tie('schema'), {
    maxKeys: 3,
    noNullPrototype: true,
  }),
  schema: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    scalar,
    tie('schema').map<Make>(inner => z => z.optional(inner(z))),
    fc.tuple(tie('schema'), fc.constantFrom<unknown>(false, 'a', 0, [], ['a'])).map<Make>(
      ([inner, value]) =>
        z =>
          z._default(inner(z), value),
    ),
    tie('schema').map<Make>(inner => z => z.array(inner(z))),
    tie('schema').map<Make>(inner => z => z.array(inner(z)).check(z.minLength(1, 'must not be empty'))),
    fc.tuple(checkedText, tie('schema')).map<Make>(([key, inner]) => z => {
      return z.record(key(z) as zod.ZodMiniString, inner(z));
    }),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map<Make>(options => z => {
      return z.union(
        options.map(option => option(z)),
        'must be one of them',
      );
    }),
    fc.tuple(fc.constantFrom('object', 'looseObject', 'strictObject'), tie('shape')).map<Make>(
      ([kind, shape]) =>
        z =>
          z[kind as 'object'](made(shape, z)),
    ),
    fc.tuple(tie('shape'), tie('shape')).map<Make>(([base, more]) => z => {
      return z.extend(z.looseObject(made(base, z)), made(more, z));
    }),
    tie('shape').map<Make>(shape => z => {
      return z
        .looseObject(made(shape, z))
        .check(z.refine(value => Object.keys(value).length !== 2, 'must not have two keys'));
    }),
  ),
}));

function made(shape: Record<string, Make>, z: Zods): Record<string, zod.ZodMiniType> {
  return Object.fromEntries(Object.entries(shape).map(([key, make]) => [key, make(z)]));
}

/** As JSON brings it, and as code may: with members that are undefined. */
const value = fc.letrec<{ value: unknown }>(tie => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom<unknown>(
      'a',
      'ab',
      'b',
      '',
      0,
      5,
      11,
      -1,
      1.5,
      2 ** 60,
      Infinity,
      NaN,
      true,
      null,
      undefined,
    ),
    fc.array(tie('value'), { maxLength: 3 }),
    fc
      .uniqueArray(fc.tuple(fc.constantFrom(...KEYS, 'c', 'd'), tie('value')), {
        selector: ([key]) => key,
        maxLength: 4,
      })
      .map(
        // Unlike an assignment, this makes a member of `__proto__`, as JSON.parse does.
        entries => Object.fromEntries(entries),
      ),
  ),
})).value;

test('a value is accepted, copied and refused as by zod', () => {
  let accepted = 0;
  fc.assert(
    fc.property(schema, value, (make, input) => {
      const before = structuredClone(input);
      const expected = read(() => zod.safeParse(make(zod), input, { reportInput: true }));
      const found = read(() => {
        return (quick as unknown as Zods).safeParse(make(quick as unknown as Zods), input, {
          reportInput: true,
        });
      });
      expect(found).toEqual(expected);
      expect(input).toEqual(before);
      if (!expected.includes('"refused"')) accepted++;
    }),
    { numRuns: RUNS * 2 },
  );
  expect(accepted).toBeGreaterThan(RUNS);
});

test('everything that the sources use of zod is there', () => {
  const used = new Set<string>();
  for (const folder of ['src', 'plugins']) {
    for (const name of fs.readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts') || name.startsWith('build/')) continue;
      const code = fs.readFileSync(path.join(ROOT, folder, name), 'utf8');
      const values = code.matchAll(/\bz\.(?!core\b|output\b|input\b|infer\b|ZodMini)(\w+)/g);
      if (/from 'zod\/mini'/.test(code)) for (const [, one = ''] of values) used.add(one);
    }
  }
  expect(used.size).toBeGreaterThan(20);
  expect([...used].filter(name => !Object.hasOwn(quick, name))).toEqual([]);
  const replayed = [...used].filter(name => name !== 'globalRegistry');
  expect(replayed.filter(name => !Object.hasOwn(full, name))).toEqual([]);
});

/** Everything that a caller can tell apart, as text: order and presence of keys, and members that are undefined. */
function read(parse: () => zod.core.util.SafeParseResult<unknown>): string {
  const parsed = parse();
  return written(parsed.success ? { data: parsed.data } : { refused: parsed.error.issues });
}

function written(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(written).join()}]`;
  if (typeof value !== 'object' || value === null) {
    return typeof value === 'string' ? JSON.stringify(value) : String(value);
  }
  const members = Object.entries(value).filter(([key]) => key !== 'inst');
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${written(member)}`).join()}}`;
}
