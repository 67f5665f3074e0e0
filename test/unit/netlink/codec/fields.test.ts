// Do fields keep width and byte order?
import { describe, expect, test } from 'bun:test';
import { parseIp } from '../../../../src/net/ip.ts';
import * as fields from '../../../../src/netlink/codec/fields.ts';
import { Writer } from '../../../../src/netlink/codec/writer.ts';

function encode<T>(field: fields.Field<T>, value: T): number[] {
  const writer = new Writer();
  field.encode(writer, value, {});
  return [...writer.finish()];
}

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
