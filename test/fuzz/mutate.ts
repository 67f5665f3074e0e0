// How does a valid sample become unexpected input?
import fc from 'fast-check';
import { isObject, type JsonObject } from '../../src/cni/json.ts';

/** Paths that would lead out of a directory if they were joined to it. The search for stray files looks for `ESCAPE`. */
export const ESCAPES = [
  '../ESCAPE',
  '../../../../../../../../tmp/ESCAPE',
  '/tmp/ESCAPE',
  '..',
  '.',
  'a/../../ESCAPE',
];

const STRANGE_TEXTS = [
  ...ESCAPES,
  ...[
    '',
    ' ',
    '\0',
    'a\0b',
    '\n',
    '\r\n',
    '\t',
    '\u001b[31m',
    '\ud800',
    '\uffff',
    'é',
    '𝕏',
    '"',
    '\\',
    "'",
    '`',
  ],
  ...[
    '$(reboot)',
    '; reboot',
    '%s%n',
    '-1',
    '0',
    '00',
    '1e999',
    'NaN',
    'null',
    'true',
    '__proto__',
    'constructor',
  ],
  ...['10.0.0.0/33', '10.0.0.300', '::ffff:10.1.2.3/120', 'fe80::1%eth0', '::/0', '0.0.0.0/0', '10.1.2.0/24'],
  ...[
    'ff:ff:ff:ff:ff:ff',
    '00:00:00:00:00:00',
    'x'.repeat(300),
    '(a+)+$',
    '[',
    '{',
    '/',
    'lo',
    'eth0',
    'all',
  ],
];

const STRANGE_NUMBERS = [
  0,
  -0,
  -1,
  1,
  255,
  256,
  65535,
  65536,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  -(2 ** 63),
  1e308,
  0.5,
  5e-324,
];

const NESTED = nest(2_000);

/** Unexpected text. */
export const strangeText: fc.Arbitrary<string> = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...STRANGE_TEXTS) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }) },
);

/** A value of an unexpected type. */
export const strangeValue: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 40, arbitrary: strangeText },
  { weight: 20, arbitrary: fc.constantFrom<unknown>(...STRANGE_NUMBERS) },
  {
    weight: 20,
    arbitrary: fc.constantFrom<unknown>(null, true, false, [], {}, [[]], [null], [{}], { '': {} }),
  },
  { weight: 8, arbitrary: fc.jsonValue({ maxDepth: 2, depthSize: 'small' }) },
  { weight: 1, arbitrary: fc.constantFrom<unknown>(NESTED, new Array(5_000).fill(0), 'y'.repeat(100_000)) },
);

const strangeKey = fc.constantFrom(
  '__proto__',
  'constructor',
  '',
  'type',
  'NAME',
  'cniVersion',
  'é',
  'x'.repeat(200),
);

interface JsonEdit {
  readonly at: number;
  readonly how: 'replace' | 'drop' | 'wrap' | 'rename' | 'add' | 'repeat' | 'swap';
  readonly value: unknown;
  readonly key: string;
}

const jsonEdit: fc.Arbitrary<JsonEdit> = fc.record({
  at: fc.nat(10_000),
  how: fc.constantFrom('replace', 'replace', 'replace', 'drop', 'wrap', 'rename', 'add', 'repeat', 'swap'),
  value: strangeValue,
  key: strangeKey,
});

/** One of the samples with up to four changes. */
export function damagedJson(samples: readonly JsonObject[]): fc.Arbitrary<JsonObject> {
  return fc
    .tuple(fc.constantFrom(...samples), fc.array(jsonEdit, { maxLength: 4 }))
    .map(([sample, edits]) => {
      const changed = edits.reduce<unknown>((value, edit) => applyEdit(value, edit), sample);
      return isObject(changed) ? changed : { changed };
    });
}

/** The text of damaged JSON, sometimes damaged as text as well. */
export function damagedJsonText(samples: readonly JsonObject[]): fc.Arbitrary<string> {
  const texts = damagedJson(samples).map(value => JSON.stringify(value));
  return fc.oneof(
    { weight: 5, arbitrary: texts },
    { weight: 1, arbitrary: texts.chain(text => editedText([text])) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        '',
        'null',
        '[]',
        '0',
        '"',
        '{',
        '\ufeff{}',
        '{"a":1}{"a":2}',
        '['.repeat(50_000),
      ),
    },
  );
}

interface TextEdit {
  readonly at: number;
  readonly length: number;
  readonly how: 'cut' | 'repeat' | 'insert' | 'end' | 'flip';
  readonly text: string;
}

const textEdit: fc.Arbitrary<TextEdit> = fc.record({
  at: fc.nat(100_000),
  length: fc.nat(40),
  how: fc.constantFrom('cut', 'repeat', 'insert', 'insert', 'end', 'flip'),
  text: strangeText,
});

/** One of the samples with up to four changes anywhere in its text. */
export function editedText(samples: readonly string[]): fc.Arbitrary<string> {
  return fc
    .tuple(fc.constantFrom(...samples), fc.array(textEdit, { maxLength: 4 }))
    .map(([sample, edits]) => edits.reduce(editText, sample));
}

/** Edited samples, and noise. */
export function damagedText(samples: readonly string[]): fc.Arbitrary<string> {
  return fc.oneof(
    { weight: 8, arbitrary: editedText(samples) },
    { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 200 }) },
    { weight: 1, arbitrary: fc.array(strangeText, { maxLength: 8 }).map(parts => parts.join('')) },
  );
}

interface ByteEdit {
  readonly at: number;
  readonly how: 'set' | 'u16' | 'u32' | 'cut' | 'end' | 'insert' | 'repeat';
  readonly value: number;
}

const byteEdit: fc.Arbitrary<ByteEdit> = fc.record({
  at: fc.nat(100_000),
  how: fc.constantFrom('set', 'u16', 'u16', 'u16', 'u32', 'cut', 'end', 'insert', 'repeat'),
  value: fc.oneof(
    fc.constantFrom(0, 1, 3, 4, 5, 8, 16, 255, 0x7fff, 0x8000, 0xffff, 0xffffffff),
    fc.nat(0xffff),
  ),
});

/** One of the samples with up to five changes, mainly of lengths; and noise. */
export function damagedBytes(samples: readonly Uint8Array[]): fc.Arbitrary<Uint8Array> {
  const edited = fc
    .tuple(fc.constantFrom(...samples), fc.array(byteEdit, { maxLength: 5 }))
    .map(([sample, edits]) => edits.reduce(editBytes, sample));
  return fc.oneof(
    { weight: 8, arbitrary: edited },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }) },
    { weight: 2, arbitrary: attributeBytes(3) },
  );
}

/** Attributes with correct lengths: of existing and missing types, nested in each other, with payloads of any size. */
export function attributeBytes(depth: number): fc.Arbitrary<Uint8Array> {
  const leaf = fc.oneof(
    fc.uint8Array({ maxLength: 20 }),
    fc
      .constantFrom('veth', 'bridge', 'tbf', 'htb', 'u32', 'mirred', 'ingress', 'cmp', 'nat', 'payload', 'x')
      .map(zeroEnded),
    fc.constantFrom(1, 2, 4, 8, 16, 32, 64).map(size => new Uint8Array(size).fill(1)),
  );
  const payload = depth === 0 ? leaf : fc.oneof(leaf, attributeBytes(depth - 1));
  return fc
    .array(fc.tuple(fc.nat(40), fc.boolean(), payload), { maxLength: 5 })
    .map(all =>
      joinBytes(all.map(([type, nested, bytes]) => attribute(nested ? type | 0x8000 : type, bytes))),
    );
}

/** Concatenates bytes. */
export function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  return Uint8Array.from(Buffer.concat(parts));
}

function attribute(type: number, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array((4 + payload.length + 3) & ~3);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, 4 + payload.length, true);
  view.setUint16(2, type, true);
  bytes.set(payload, 4);
  return bytes;
}

function zeroEnded(text: string): Uint8Array {
  return new TextEncoder().encode(`${text}\0`);
}

function nest(depth: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { a: value };
  return value;
}

/** Values are numbered from the top, in document order; the edit is applied to one of them. */
function applyEdit(root: unknown, edit: JsonEdit): unknown {
  const total = countValues(root);
  let left = total === 0 ? 0 : edit.at % total;
  const visit = (value: unknown): unknown => {
    if (left-- === 0) return changed(value, edit);
    if (left < 0) return value;
    if (Array.isArray(value)) return value.map(visit).filter(one => one !== GONE);
    if (!isObject(value)) return value;
    const entries = Object.entries(value).map(([key, one]) => {
      const here = left === 0;
      const next = visit(one);
      return [here && edit.how === 'rename' ? renamed(key, edit) : key, next] as const;
    });
    return Object.fromEntries(entries.filter(([, one]) => one !== GONE));
  };
  const result = visit(root);
  return result === GONE ? {} : result;
}

const GONE = Symbol('gone');

function countValues(value: unknown, depth = 0): number {
  if (depth > 50) return 1;
  if (Array.isArray(value)) return value.reduce<number>((sum, one) => sum + countValues(one, depth + 1), 1);
  if (!isObject(value)) return 1;
  return Object.values(value).reduce<number>((sum, one) => sum + countValues(one, depth + 1), 1);
}

function changed(value: unknown, { how, value: strange, key }: JsonEdit): unknown {
  switch (how) {
    case 'drop':
      return GONE;
    case 'wrap':
      return [value];
    case 'rename':
      return value;
    case 'add':
      return isObject(value) ? { ...value, [key]: strange } : strange;
    case 'repeat':
      return Array.isArray(value) ? [...value, ...value, strange] : [value, value];
    case 'swap':
      return typeof value === 'string'
        ? `${value}${String(typeof strange === 'object' ? '' : strange)}`
        : strange;
    case 'replace':
      return strange;
  }
}

function renamed(key: string, edit: JsonEdit): string {
  return edit.at % 3 === 0 ? edit.key : edit.at % 3 === 1 ? key.toUpperCase() : `${key}x`;
}

function editText(text: string, { at, length, how, text: strange }: TextEdit): string {
  const place = at % (text.length + 1);
  const [before, piece, after] = [
    text.slice(0, place),
    text.slice(place, place + length),
    text.slice(place + length),
  ];
  switch (how) {
    case 'cut':
      return before + after;
    case 'repeat':
      return before + piece.repeat(1 + (at % 20)) + after;
    case 'insert':
      return before + strange + piece + after;
    case 'end':
      return before;
    case 'flip':
      return before + strange.slice(0, 1) + piece.slice(1) + after;
  }
}

function editBytes(bytes: Uint8Array, { at, how, value }: ByteEdit): Uint8Array {
  // Lengths are at multiples of four more often than elsewhere.
  const place = bytes.length === 0 ? 0 : (at % bytes.length) & (at % 5 === 0 ? ~0 : ~3);
  const copy = bytes.slice();
  const view = new DataView(copy.buffer);
  switch (how) {
    case 'set':
      if (place < copy.length) copy[place] = value;
      return copy;
    case 'u16':
      if (place + 2 <= copy.length) view.setUint16(place, value, true);
      return copy;
    case 'u32':
      if (place + 4 <= copy.length) view.setUint32(place, value, true);
      return copy;
    case 'cut':
      return joinBytes([copy.subarray(0, place), copy.subarray(place + (value % 9))]);
    case 'end':
      return copy.subarray(0, place);
    case 'insert':
      return joinBytes([
        copy.subarray(0, place),
        new Uint8Array(value % 9).fill(value),
        copy.subarray(place),
      ]);
    case 'repeat':
      return joinBytes([copy, copy.subarray(place)]);
  }
}
