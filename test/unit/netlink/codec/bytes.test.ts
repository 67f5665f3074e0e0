// Does a writer grow, pad and patch?
import { expect, test } from 'bun:test';
import { align4, Writer } from '../../../../src/netlink/codec/bytes.ts';

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
  writer.u32(0);
  writer.patchU16(0, 0x0102);
  writer.patchU32(2, 0x03040506);
  expect([...writer.finish()]).toEqual([2, 1, 6, 5, 4, 3]);
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
