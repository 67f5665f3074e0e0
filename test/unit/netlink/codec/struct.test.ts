// Are C structs laid out field after field?
import { describe, expect, test } from 'bun:test';
import { u8, u16, u32 } from '../../../../src/netlink/codec/fields.ts';
import { struct } from '../../../../src/netlink/codec/struct.ts';
import { Writer } from '../../../../src/netlink/codec/writer.ts';

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
