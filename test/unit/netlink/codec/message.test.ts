// Are messages put into a buffer and taken out of one?
import { describe, expect, test } from 'bun:test';
import { attrs, u8, u16, u32 } from '../../../../src/netlink/codec/attrs.ts';
import { Writer } from '../../../../src/netlink/codec/bytes.ts';
import {
  decodeMessages,
  encodeMessages,
  layout,
  nlmsgerr,
  nlmsghdr,
  struct,
} from '../../../../src/netlink/codec/message.ts';

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
    expect(() => decodeMessages(bytes)).toThrow('Cannot decode message at byte 0: it claims 99 of 20 bytes');
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
  const tiny = layout(struct('tiny', [['family', u8]]), attrs('tiny', { size: [1, u16] }));

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

const inner = struct('inner', [
  ['a', u8],
  ['_pad', u8],
  ['b', u16],
]);
const outer = struct('outer', [
  ['inner', inner],
  ['c', u32],
]);

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
