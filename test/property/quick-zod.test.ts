// Do the executables read every value as zod does, although they do not use zod for it?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import * as zod from 'zod/mini';
import * as full from '../../plugins/build/quick-zod/full.ts';
import * as quick from '../../plugins/build/quick-zod/zod-mini.ts';
import { RUNS } from './arbitrary.ts';

type Zods = typeof zod;
/** Makes one schema of zod or of what stands in for it. */
type Make = (z: Zods) => zod.ZodMiniType;

/** A schema, and values of which most are valid. */
interface Sample {
  readonly make: Make;
  readonly values: readonly unknown[];
}

const ROOT = path.resolve(import.meta.dir, '../..');

const samples = (...rows: readonly (readonly [Make, ...unknown[]])[]) =>
  fc.constantFrom<Sample>(...rows.map(([make, ...values]) => ({ make, values })));

const text = samples(
  [z => z.string(), 'a', 'b'],
  [z => z.string().check(z.minLength(2)), 'ab', 'a'],
  [z => z.string().check(z.maxLength(1, 'must be short')), 'a', 'ab'],
  [z => z.string().check(z.regex(/^a/, 'must begin with a'), z.startsWith('a')), 'a', 'ab'],
  [z => z.string().check(z.regex(/b/g)), 'ab', 'b'],
  [z => z.string().check(z.refine(one => one !== 'ab', 'must not be ab')), 'a', 'ab'],
);
const scalar = fc.oneof(
  text,
  samples(
    [z => z.int(), 1, 2 ** 60],
    [z => z.int().check(z.minimum(0), z.maximum(10)), 0, 10, 11],
    [z => z.number(), 1.5, -0],
    [z => z.number().check(z.positive()), 0.5, 0],
    [z => z.boolean(), true, false],
    [z => z.unknown(), 'a', null, undefined],
    [z => z.literal('a'), 'a'],
    [z => z.enum(['a', 'ab']), 'a', 'ab'],
    [z => z.unknown().check(z.refine(value => typeof value === 'string', 'must be text')), 'a', 1],
    [z => z.tuple([z.string(), z.int()]), ['a', 1], ['a']],
  ),
);

type Shape = Record<string, Sample>;

const { schema } = fc.letrec<{ schema: Sample; shape: Shape }>(tie => ({
  shape: fc.dictionary(fc.constantFrom('a', 'b', 'c', '1'), tie('schema'), {
    maxKeys: 3,
    noNullPrototype: true,
  }),
  schema: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    scalar,
    tie('schema').map(({ make, values }) => ({
      make: (z: Zods) => z.optional(make(z)),
      values: [...values, undefined],
    })),
    tie('schema').map(({ make, values }) => ({
      make: (z: Zods) => z.nullable(make(z)),
      values: [...values, null],
    })),
    fc
      .tuple(tie('schema'), fc.constantFrom<unknown>(false, 'a', 0, [], ['a']))
      .map(([{ make, values }, value]) => ({
        make: (z: Zods) => z._default(make(z), value),
        values: [...values, undefined],
      })),
    tie('schema').map(({ make, values }) => ({
      make: (z: Zods) => z.array(make(z)),
      values: [[], [values[0]], values],
    })),
    tie('schema').map(({ make, values }) => ({
      make: (z: Zods) => z.array(make(z)).check(z.minLength(1, 'must not be empty')),
      values: [[], [values[0]], values],
    })),
    fc.tuple(text, tie('schema')).map(([key, { make, values }]) => ({
      make: (z: Zods) => z.record(key.make(z) as zod.ZodMiniString, make(z)),
      values: values.map(value => ({ [key.values[0] as string]: value })),
    })),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map(options => ({
      make: (z: Zods) => {
        const made = options.map(option => option.make(z));
        return z.union(made, 'must be one of them');
      },
      values: options.flatMap(({ values }) => values),
    })),
    fc.tuple(fc.constantFrom('object', 'looseObject', 'strictObject'), tie('shape')).map(([kind, shape]) => ({
      make: (z: Zods) => z[kind as 'object'](made(shape, z)),
      values: objectsOf(shape),
    })),
    fc.tuple(tie('shape'), tie('shape')).map(([base, more]) => ({
      make: (z: Zods) => z.extend(z.looseObject(made(base, z)), made(more, z)),
      values: objectsOf({ ...base, ...more }),
    })),
    tie('shape').map(shape => ({
      make: (z: Zods) => {
        const check = z.refine(value => Object.keys(value as object).length !== 2, 'must not have two keys');
        return z.looseObject(made(shape, z)).check(check);
      },
      values: objectsOf(shape),
    })),
  ),
}));

function made(shape: Shape, z: Zods): Record<string, zod.ZodMiniType> {
  return Object.fromEntries(Object.entries(shape).map(([key, { make }]) => [key, make(z)]));
}

/** Complete, with a member that no schema names, and each without one member. */
function objectsOf(shape: Shape): unknown[] {
  const members = Object.entries(shape).map(([key, { values }]) => [key, values[0]] as const);
  const complete = Object.fromEntries(members);
  const partial = members.map(([left]) => Object.fromEntries(members.filter(([key]) => key !== left)));
  return [complete, { d: 1, ...complete }, ...partial];
}

/** As JSON brings it, and as code may: with members that are undefined. */
const KEYS = ['a', 'b', 'c', 'd', 'toString', '__proto__', '1'];

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
      .uniqueArray(fc.tuple(fc.constantFrom(...KEYS), tie('value')), {
        selector: ([key]) => key,
        maxLength: 4,
      })
      .map(
        // Unlike an assignment, this makes a member of `__proto__`, as JSON.parse does.
        entries => Object.fromEntries(entries),
      ),
  ),
})).value;

const schemaAndValue = schema.chain(({ make, values }) => {
  return fc.tuple(fc.constant(make), fc.oneof(fc.constantFrom(...values, undefined), value));
});

test('a value is accepted, copied and refused as by zod', () => {
  let accepted = 0;
  fc.assert(
    fc.property(schemaAndValue, ([make, input]) => {
      const before = structuredClone(input);
      const [expected, found] = [zod, quick as unknown as Zods].map(z => {
        return written(z.safeParse(make(z), input, { reportInput: true }));
      });
      expect(found).toEqual(expected);
      expect(input).toEqual(before);
      if (!expected?.startsWith('{"refused"')) accepted++;
    }),
    { numRuns: RUNS * 2 },
  );
  expect(accepted).toBeGreaterThan(RUNS / 2);
});

/** Run by builds only, ours and those of plugin authors, which have zod itself. */
const RUN_BY_BUILDS = ['build/', 'plugin/schema/render.ts'];

test('everything that the sources use of zod is there', () => {
  const used = new Set<string>();
  for (const folder of ['src', 'plugins']) {
    for (const name of fs.readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts') || RUN_BY_BUILDS.some(one => name.startsWith(one))) continue;
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
function written(parsed: zod.core.util.SafeParseResult<unknown>): string {
  return textOf(parsed.success ? { data: parsed.data } : { refused: parsed.error.issues });
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(textOf).join()}]`;
  if (typeof value === 'string') return JSON.stringify(value);
  if (Object.is(value, -0)) return '-0';
  if (typeof value !== 'object' || value === null) return String(value);
  // A schema of zod's own, in an issue.
  const members = Object.entries(value).filter(([key]) => key !== 'inst');
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${textOf(member)}`).join()}}`;
}
