// Do bytes come out as they went in, also where the buffer has to grow in between?

import { describe, expect, test } from 'bun:test';
import { Writer } from '../../../../src/netlink/codec/writer.ts';

describe('Writer', () => {
  test.each([0, 1, 2, 3, 5, 7])(
    'u8() to u64() write across the end of a full buffer, %i bytes before it',
    gap => {
      const writer = new Writer();
      writer.bytes(new Uint8Array(512 - gap));
      writer.u8(1);
      writer.u16(0x0203, true);
      writer.u32(0x04050607, true);
      writer.u64(0x08090a0b0c0d0e0fn, true);
      const written = Array.from(writer.finish().subarray(512 - gap));
      expect(written).toEqual(Array.from({ length: 15 }, (_, i) => i + 1));
    },
  );

  test.each([
    ['u16', (w: Writer) => w.u16(0xabcd), [0xcd, 0xab]],
    ['u32', (w: Writer) => w.u32(0x01020304), [4, 3, 2, 1]],
    ['u64', (w: Writer) => w.u64(1n), [1, 0, 0, 0, 0, 0, 0, 0]],
  ] as const)('%s() may be the write that makes the buffer grow', (_name, write, bytes) => {
    const writer = new Writer();
    writer.bytes(new Uint8Array(511));
    write(writer);
    expect(Array.from(writer.finish().subarray(511))).toEqual([...bytes]);
  });

  test('pad() fills up to four bytes with zeros', () => {
    const writer = new Writer();
    writer.u8(9);
    writer.pad();
    expect(Array.from(writer.finish())).toEqual([9, 0, 0, 0]);
  });
});
