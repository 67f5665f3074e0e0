// Are comments kept where nft looks for them?
import { describe, expect, test } from 'bun:test';
import { Writer } from '../../../../src/netlink/codec/bytes.ts';
import { comment, setUserdata } from '../../../../src/netlink/nft/userdata.ts';

describe('comment', () => {
  test('is an entry of type 0 with a terminating zero', () => {
    expect(encoded('hi')).toEqual([0, 3, 0x68, 0x69, 0]);
    expect(comment.decode(Uint8Array.of(0, 3, 0x68, 0x69, 0), {})).toBe('hi');
  });

  test('is found behind entries of other types, and is empty when absent', () => {
    expect(comment.decode(Uint8Array.of(4, 2, 9, 9, 0, 2, 0x78, 0), {})).toBe('x');
    expect(comment.decode(Uint8Array.of(4, 2, 9, 9), {})).toBe('');
  });

  test('is refused when the kernel could not keep it', () => {
    expect(encoded('x'.repeat(253))).toHaveLength(256);
    expect(() => encoded('x'.repeat(254))).toThrow('the kernel keeps 253 bytes at most');
  });
});

test('setUserdata() sets the order in which nft prints keys and data', () => {
  expect(Array.from(setUserdata('big'))).toEqual([0, 4, 2, 0, 0, 0]);
  expect(Array.from(setUserdata('host', 'mixed'))).toEqual([0, 4, 1, 0, 0, 0, 1, 4, 0, 0, 0, 0]);
});

function encoded(text: string): number[] {
  const writer = new Writer();
  comment.encode(writer, text, {});
  return Array.from(writer.finish());
}
