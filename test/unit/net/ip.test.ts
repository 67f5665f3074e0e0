import { describe, expect, test } from 'bun:test';
import { findIp, ipFromBytes, ipToBytes, offsetIp, parseIp, renderIp, sameIp } from '../../../src/net/ip.ts';

describe('parseIp()', () => {
  test.each([
    ['0.0.0.0', 4, 0n],
    ['10.1.2.3', 4, 0x0a010203n],
    ['255.255.255.255', 4, 0xffffffffn],
    ['::', 6, 0n],
    ['::1', 6, 1n],
    ['fd00::a:1', 6, 0xfd0000000000000000000000000a0001n],
    ['1:2:3:4:5:6:7:8', 6, 0x00010002000300040005000600070008n],
    ['FE80::ABCD', 6, 0xfe80000000000000000000000000abcdn],
    ['64:ff9b::10.0.0.1', 6, 0x0064ff9b00000000000000000a000001n],
    ['::ffff:10.0.0.1', 4, 0x0a000001n],
    ['::ffff:a00:1', 4, 0x0a000001n],
  ] as const)('reads %s', (text, family, value) => {
    expect(parseIp(text)).toEqual({ family, value });
  });

  test.each([
    ...[
      '',
      '1',
      '1.2.3',
      '1.2.3.4.5',
      '1.2.3.256',
      '01.2.3.4',
      '1.2.3.04',
      '1.2.3.-4',
      ' 1.2.3.4',
      '1.2.3.4 ',
    ],
    ...[
      '1.2.3.4/24',
      'a.b.c.d',
      ':',
      ':::',
      '1::2::3',
      '1:2:3:4:5:6:7',
      '1:2:3:4:5:6:7:8:9',
      '1:2:3:4:5:6:7:8::',
    ],
    ...['12345::', 'g::', 'fe80::1%eth0', '::1.2.3', '1.2.3.4::', '::1.2.3.4:1', '1:2:3:4:5:6:7:1.2.3.4'],
  ])('refuses %j', text => {
    expect(findIp(text)).toBeUndefined();
    expect(() => parseIp(text)).toThrow(`Cannot read IP address "${text}": it is neither IPv4 nor IPv6`);
  });
});

describe('renderIp()', () => {
  test.each([
    ['10.0.0.1', '10.0.0.1'],
    ['0:0:0:0:0:0:0:0', '::'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['1:0:0:0:0:0:0:0', '1::'],
    ['2001:0DB8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3'],
    ['fd00:0010::0a', 'fd00:10::a'],
  ])('writes %s as %s', (text, expected) => {
    expect(renderIp(parseIp(text))).toBe(expected);
  });
});

test('ipToBytes() and ipFromBytes() use network byte order', () => {
  expect([...ipToBytes(parseIp('10.1.2.3'))]).toEqual([10, 1, 2, 3]);
  expect([...ipToBytes(parseIp('fd00::1:2'))]).toEqual([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]);
  for (const text of ['10.1.2.3', 'fd00::1:2'])
    expect(renderIp(ipFromBytes(ipToBytes(parseIp(text))))).toBe(text);
  expect(() => ipFromBytes(new Uint8Array(5))).toThrow('expected 4 or 16 bytes, found 5');
});

test('sameIp() compares family and value', () => {
  expect(sameIp(parseIp('10.0.0.1'), parseIp('::ffff:10.0.0.1'))).toBe(true);
  expect(sameIp(parseIp('0.0.0.1'), parseIp('::1'))).toBe(false);
});

test('offsetIp() counts across octets, and may leave the family', () => {
  expect(renderIp(offsetIp(parseIp('10.0.0.255'), 1n))).toBe('10.0.1.0');
  expect(renderIp(offsetIp(parseIp('10.0.1.0'), -1n))).toBe('10.0.0.255');
  expect(offsetIp(parseIp('255.255.255.255'), 1n).value).toBe(0x100000000n);
});
