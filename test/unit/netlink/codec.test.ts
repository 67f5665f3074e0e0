// Does a writer grow, pad and patch?

import { describe, expect, test } from 'bun:test';
import { parseIp } from '../../../src/net/ip.ts';
import * as fields from '../../../src/netlink/codec.ts';
import {
  align4,
  attrs,
  byKind,
  decodeMessages,
  encodeMessages,
  type Field,
  layout,
  listOf,
  nlmsgerr,
  nlmsghdr,
  str,
  struct,
  u8,
  u16,
  u32,
  Writer,
} from '../../../src/netlink/codec.ts';

test('align4() rounds up to four', () => {
  expect([0, 1, 3, 4, 5].map(align4)).toEqual([0, 4, 4, 4, 8]);
});

test('Writer grows past its first buffer and keeps its contents', () => {
  const writer = new Writer();
  for (let i = 0; i < 1_000; i++) writer.u32(i);
  writer.bytes(new Uint8Array(10_000).fill(7));
  const bytes = writer.finish();
  expect(bytes).toHaveLength(14_000);
  expect(new DataView(bytes.buffer).getUint32(4 * 999, true)).toBe(999);
  expect(bytes.at(-1)).toBe(7);
});

test('Writer pads with zeros', () => {
  const writer = new Writer();
  writer.u8(1);
  writer.pad();
  writer.pad();
  expect([...writer.finish()]).toEqual([1, 0, 0, 0]);
});

test('Writer patches lengths that were left open', () => {
  const writer = new Writer();
  writer.u16(0);
  writer.u16(0x0304);
  writer.patchU16(0, 0x0102);
  expect([...writer.finish()]).toEqual([2, 1, 4, 3]);
});

test('Writer starts empty after take(), without traces of earlier bytes', () => {
  const writer = new Writer();
  writer.u32(0xffffffff);
  const first = writer.take();
  writer.u8(1);
  writer.pad();
  writer.zeros(2);
  expect([...first]).toEqual([255, 255, 255, 255]);
  expect([...writer.finish()]).toEqual([1, 0, 0, 0, 0, 0]);
  writer.clear();
  expect(writer.length).toBe(0);
});

function encode<T>(field: Field<T>, value: T): number[] {
  const writer = new Writer();
  field.encode(writer, value, {});
  return [...writer.finish()];
}

function decode<T>(field: Field<T>, bytes: number[]): T {
  return field.decode(Uint8Array.from(bytes), {});
}

const inner = attrs('inner', { size: [3, u16] });
const set = attrs('set', {
  name: [1, str],
  inner: [2, inner],
  many: [4, listOf(u8, 'numbered')],
  elements: [5, listOf(u8, 7)],
});

describe('attrs()', () => {
  test('pads every attribute, flags nested ones, and counts neither padding nor the next attribute', () => {
    const bytes = [6, 0, 1, 0, 97, 0, 0, 0, 12, 0, 2, 0x80, 6, 0, 3, 0, 9, 0, 0, 0];
    expect(encode(set, { name: 'a', inner: { size: 9 } })).toEqual(bytes);
    expect(decode(set, bytes)).toEqual({ name: 'a', inner: { size: 9 } });
  });

  test('reads nested attributes with and without the flag', () => {
    expect(decode(set, [12, 0, 2, 0, 6, 0, 3, 0, 9, 0, 0, 0])).toEqual({ inner: { size: 9 } });
  });

  test('omits undefined values', () => {
    expect(encode(set, { name: undefined } as object)).toEqual([]);
  });

  test('keeps unknown attributes and writes them back', () => {
    const bytes = [5, 0, 99, 0, 42, 0, 0, 0];
    const values = decode(set, bytes);
    expect(values).toEqual({ unknown: [{ type: 99, bytes: Uint8Array.of(42) }] });
    expect(encode(set, values)).toEqual(bytes);
  });

  test('refuses a name that is not in the table', () => {
    expect(() => encode(set, { nmae: 'a' } as object)).toThrow(
      'Cannot encode set: it has no attribute "nmae"',
    );
  });

  test.each([
    ['shorter than its header', [3, 0, 1, 0], 'Cannot decode set: attribute at byte 0 claims 3 of 4 bytes'],
    ['longer than the message', [9, 0, 1, 0, 97, 0, 0, 0], 'attribute at byte 0 claims 9 of 8 bytes'],
    ['cut off', [8, 0, 2, 0x80, 5, 0, 3, 0], 'Cannot decode set.inner: Cannot decode inner'],
    ['too short for its kind', [9, 0, 2, 0, 5, 0, 3, 0, 1, 0, 0, 0], 'inner.size: expected 2 bytes, found 1'],
  ])('refuses an attribute that is %s', (_title, bytes, message) => {
    expect(() => decode(set, bytes)).toThrow(message);
  });

  test('accepts a last attribute without padding', () => {
    expect(decode(set, [6, 0, 1, 0, 97, 0])).toEqual({ name: 'a' });
  });
});

describe('listOf()', () => {
  test('numbers elements from 1', () => {
    const bytes = [20, 0, 4, 0x80, 5, 0, 1, 0, 10, 0, 0, 0, 5, 0, 2, 0, 20, 0, 0, 0];
    expect(encode(set, { many: [10, 20] })).toEqual(bytes);
    expect(decode(set, bytes)).toEqual({ many: [10, 20] });
  });

  test('gives elements a type', () => {
    const bytes = [12, 0, 5, 0x80, 5, 0, 7, 0, 10, 0, 0, 0];
    expect(encode(set, { elements: [10] })).toEqual(bytes);
    expect(decode(set, bytes)).toEqual({ elements: [10] });
  });
});

describe('byKind()', () => {
  const options = attrs('options', { rate: [1, u32] });
  const qdisc = attrs('qdisc', { kind: [1, str], options: [2, byKind('kind', { tbf: options })] });

  test('uses the layout that a sibling names', () => {
    const bytes = [8, 0, 1, 0, 116, 98, 102, 0, 12, 0, 2, 0x80, 8, 0, 1, 0, 5, 0, 0, 0];
    expect(encode(qdisc, { kind: 'tbf', options: { rate: 5 } })).toEqual(bytes);
    expect(decode(qdisc, bytes)).toEqual({ kind: 'tbf', options: { rate: 5 } });
  });

  test.each([['htb'], ['constructor'], ['__proto__']])('keeps the bytes of kind "%s"', kind => {
    const values = { kind, options: Uint8Array.of(1, 2, 3, 4) };
    expect(decode(qdisc, encode(qdisc, values))).toEqual(values);
  });

  test('refuses a kind without a layout', () => {
    expect(() => encode(qdisc, { kind: 'htb', options: { rate: 5 } })).toThrow('its kind is not in tbf');
  });
});

describe('numbers', () => {
  test.each([
    ['u8', fields.u8, 0xab, [0xab]],
    ['u16', fields.u16, 0xabcd, [0xcd, 0xab]],
    ['s16', fields.s16, -1, [0xff, 0xff]],
    ['u32', fields.u32, 0xfedcba98, [0x98, 0xba, 0xdc, 0xfe]],
    ['s32', fields.s32, -2, [0xfe, 0xff, 0xff, 0xff]],
    ['u16be', fields.u16be, 0xabcd, [0xab, 0xcd]],
    ['u32be', fields.u32be, 0xfedcba98, [0xfe, 0xdc, 0xba, 0x98]],
  ] as const)('%s round-trips', (_name, field, value, bytes) => {
    expect(encode<number>(field, value)).toEqual([...bytes]);
    expect(field.decode(Uint8Array.from(bytes), {})).toBe(value);
    expect(field.size).toBe(bytes.length);
  });

  test('u64 and u64be are bigint', () => {
    const value = 0x0102030405060708n;
    expect(encode(fields.u64, value)).toEqual([8, 7, 6, 5, 4, 3, 2, 1]);
    expect(encode(fields.u64be, value)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(fields.u64.decode(Uint8Array.of(8, 7, 6, 5, 4, 3, 2, 1), {})).toBe(value);
    expect(fields.u64be.decode(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), {})).toBe(value);
  });

  test('are read from a view into a larger buffer', () => {
    const view = Uint8Array.of(9, 9, 1, 2, 9).subarray(2, 4);
    expect(fields.u16.decode(view, {})).toBe(0x0201);
  });

  test('that are truncated are refused', () => {
    expect(() => fields.u32.decode(Uint8Array.of(1, 2, 3), {})).toThrow('expected 4 bytes, found 3');
  });
});

describe('str', () => {
  test('ends with a zero when written', () => {
    expect(encode(fields.str, 'eth0')).toEqual([101, 116, 104, 48, 0]);
  });

  test('is read with and without one', () => {
    expect(fields.str.decode(Uint8Array.of(97, 98, 0), {})).toBe('ab');
    expect(fields.str.decode(Uint8Array.of(97, 98), {})).toBe('ab');
    expect(fields.str.decode(Uint8Array.of(97, 0, 98, 0), {})).toBe('a');
    expect(fields.str.decode(new Uint8Array(), {})).toBe('');
  });

  test('may contain more than ASCII', () => {
    const bytes = [...new TextEncoder().encode('a\u00e9\u{1f600}'), 0, 98];
    expect(fields.str.decode(Uint8Array.from(bytes), {})).toBe('a\u00e9\u{1f600}');
  });
});

test('mac round-trips', () => {
  expect(encode(fields.mac, '02:fc:00:00:00:01')).toEqual([2, 0xfc, 0, 0, 0, 1]);
  expect(fields.mac.decode(Uint8Array.of(2, 0xfc, 0, 0, 0, 1), {})).toBe('02:fc:00:00:00:01');
});

test('ip is as long as its family', () => {
  expect(encode(fields.ip, parseIp('10.1.2.3'))).toEqual([10, 1, 2, 3]);
  expect(encode(fields.ip, parseIp('fd00::1'))).toEqual([0xfd, ...Array(14).fill(0), 1]);
  expect(fields.ip.decode(Uint8Array.of(10, 1, 2, 3), {})).toEqual(parseIp('10.1.2.3'));
});

test('bytes are copied, so that they outlive the buffer', () => {
  const buffer = Uint8Array.of(1, 2, 3);
  const copy = fields.bytes.decode(buffer, {});
  buffer[0] = 9;
  expect(copy).toEqual(Uint8Array.of(1, 2, 3));
});

describe('message', () => {
  const message = (seq: number, ...body: number[]) => ({
    type: 16,
    flags: 5,
    seq,
    body: Uint8Array.from(body),
  });

  test('struct nlmsghdr has 16 bytes and struct nlmsgerr 20', () => {
    expect([nlmsghdr.size, nlmsgerr.size]).toEqual([16, 20]);
  });

  describe('encodeMessages()', () => {
    test('pads between messages and does not count the padding', () => {
      const bytes = encodeMessages([message(1, 7), message(2)]);
      expect([...bytes]).toEqual([
        ...[17, 0, 0, 0, 16, 0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0],
        ...[16, 0, 0, 0, 16, 0, 5, 0, 2, 0, 0, 0, 0, 0, 0, 0],
      ]);
      expect(decodeMessages(bytes)).toEqual([message(1, 7), message(2)]);
    });
  });

  describe('decodeMessages()', () => {
    test('refuses a message that claims more bytes than there are, or fewer than its header', () => {
      const bytes = encodeMessages([message(1, 7)]).slice();
      bytes[0] = 99;
      expect(() => decodeMessages(bytes)).toThrow(
        'Cannot decode message at byte 0: it claims 99 of 20 bytes',
      );
      bytes[0] = 8;
      expect(() => decodeMessages(bytes)).toThrow('it claims 8 of 20 bytes');
      expect(() => decodeMessages(new Uint8Array(15))).toThrow('15 bytes are no header');
    });

    test('returns copies of what fills the buffer up to a length', () => {
      const bytes = encodeMessages([message(1, 7), message(2)]).slice();
      const [only, ...more] = decodeMessages(bytes, 20);
      bytes.fill(0);
      expect([only, more]).toEqual([message(1, 7), []]);
    });
  });

  describe('layout()', () => {
    const tiny = layout(struct('tiny', { family: u8 }), attrs('tiny', { size: [1, u16] }));

    test('pads the header before the attributes', () => {
      const body = tiny.encode({ family: 2 }, { size: 3 });
      expect([...body]).toEqual([2, 0, 0, 0, 6, 0, 1, 0, 3, 0, 0, 0]);
      expect(tiny.decode(body)).toEqual({ header: { family: 2 }, attrs: { size: 3 } });
    });

    test('reads a header without attributes and without padding', () => {
      expect(tiny.decode(Uint8Array.of(2))).toEqual({ header: { family: 2 }, attrs: {} });
    });
  });

  test('decodeMessages() skips messages without the given bytes, except those that end or spoil a dump', () => {
    const done = { ...message(4, 1), type: 3 };
    const torn = { ...message(5, 1), flags: 0x10 };
    const all = [message(1, 7, 8, 9), message(2, 1), message(3, 4, 8, 9, 4), done, torn];
    const bytes = encodeMessages(all).slice();
    const found = decodeMessages(bytes, bytes.length, [Uint8Array.of(8, 9), Uint8Array.of(99)]);
    expect(found.map(({ seq }) => seq)).toEqual([1, 3, 4, 5]);
    expect(decodeMessages(bytes).map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5]);
  });

  const inner = struct('inner', { a: u8, _pad: u8, b: u16 });
  const outer = struct('outer', { inner, c: u32 });

  describe('struct()', () => {
    test('adds up its fields, padding and structs included', () => {
      expect([inner.size, outer.size]).toEqual([4, 8]);
    });

    test('has a value with all fields zero and none for padding', () => {
      expect(outer.zero).toEqual({ inner: { a: 0, b: 0 }, c: 0 });
    });

    test('writes zeros for padding and for omitted fields', () => {
      const writer = new Writer();
      outer.encode(writer, { inner: { a: 1, b: 0x0302 } });
      expect([...writer.finish()]).toEqual([1, 0, 2, 3, 0, 0, 0, 0]);
    });

    test('reads what it wrote and ignores what newer kernels append', () => {
      const bytes = Uint8Array.of(1, 0, 2, 3, 4, 0, 0, 0, 99, 99);
      expect(outer.decode(bytes)).toEqual({ inner: { a: 1, b: 0x0302 }, c: 4 });
    });

    test('refuses truncated bytes, and names the struct', () => {
      expect(() => outer.decode(new Uint8Array(7))).toThrow('struct outer: expected 8 bytes, found 7');
    });
  });
});
