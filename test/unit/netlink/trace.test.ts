// Can a person read a traced message?
import { expect, test } from 'bun:test';
import { renderMessage } from '../../../src/netlink/trace.ts';

test('renderMessage() shows envelope, bytes and text', () => {
  const body = new TextEncoder().encode('0123456789abcdefeth0\0\x01');
  const message = { type: 16, flags: 0x605, seq: 3, body };
  expect(renderMessage('send', 0, message)).toBe(
    [
      '┌ send protocol=0 type=16 flags=0x605 seq=3',
      '│ 0000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef',
      '│ 0010  65 74 68 30 00 01                                eth0..',
      '└',
    ].join('\n'),
  );
});

test('renderMessage() of an empty message has no rows', () => {
  const message = { type: 3, flags: 0, seq: 1, body: new Uint8Array() };
  expect(renderMessage('recv', 12, message)).toBe('┌ recv protocol=12 type=3 flags=0x0 seq=1\n└');
});
