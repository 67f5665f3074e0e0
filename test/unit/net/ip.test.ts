import { describe, expect, test } from 'bun:test';
import {
  cidrContains,
  cidrsOverlap,
  findCidr,
  findIp,
  ipFromBytes,
  ipToBytes,
  lastOf,
  netmaskOf,
  networkOf,
  offsetIp,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
  sameIp,
  subnetOf,
} from '../../../src/net/ip.ts';

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

describe('parseCidr()', () => {
  test.each([
    ['10.1.2.3/24', '10.1.2.3/24'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['fd00::1/128', 'fd00::1/128'],
    ['FD00::/8', 'fd00::/8'],
    ['::ffff:1.2.3.4/120', '1.2.3.4/24'],
  ])('reads %s as %s with its host bits', (text, expected) => {
    expect(renderCidr(parseCidr(text))).toBe(expected);
  });

  test.each([
    ...['10.0.0.1', '10.0.0.1/', '/24', '10.0.0.1/33', '10.0.0.1/-1', '10.0.0.1/024', '10.0.0.1/24/24'],
    ...['10.0.0.1/a', 'fd00::/129', '::ffff:1.2.3.4/24', '<nil>', '', '010.0.0.1/8'],
  ])('refuses %j', text => {
    expect(findCidr(text)).toBeUndefined();
    expect(() => parseCidr(text)).toThrow(
      `Cannot read address with prefix "${text}": expected address/prefix`,
    );
  });
});

describe('the bounds of a subnet', () => {
  test.each([
    ['10.1.2.3/24', '10.1.2.0', '10.1.2.255', '255.255.255.0'],
    ['10.1.2.3/32', '10.1.2.3', '10.1.2.3', '255.255.255.255'],
    ['10.1.2.3/0', '0.0.0.0', '255.255.255.255', '0.0.0.0'],
    ['10.1.2.3/31', '10.1.2.2', '10.1.2.3', '255.255.255.254'],
    ['fd00::abcd/112', 'fd00::', 'fd00::ffff', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:0'],
  ])('networkOf(), lastOf() and netmaskOf() of %s', (text, first, last, mask) => {
    const cidr = parseCidr(text);
    expect([networkOf(cidr), lastOf(cidr), netmaskOf(cidr)].map(renderIp)).toEqual([first, last, mask]);
    expect(renderCidr(subnetOf(cidr))).toBe(`${first}/${cidr.prefix}`);
  });
});

test.each([
  ['10.0.0.0/24', '10.0.0.255', true],
  ['10.0.0.7/24', '10.0.0.0', true],
  ['10.0.0.0/24', '10.0.1.0', false],
  ['0.0.0.0/0', '::1', false],
  ['::/0', 'fd00::1', true],
])('cidrContains(%s, %s) is %p', (cidr, ip, expected) => {
  expect(cidrContains(parseCidr(cidr), parseIp(ip))).toBe(expected);
});

test.each([
  ['10.0.0.0/24', '10.0.0.128/25', true],
  ['10.0.0.128/25', '10.0.0.0/24', true],
  ['10.0.0.0/24', '10.0.1.0/24', false],
  ['10.0.0.1/24', '10.0.0.200/24', true],
  ['0.0.0.0/0', '::/0', false],
])('cidrsOverlap(%s, %s) is %p', (a, b, expected) => {
  expect(cidrsOverlap(parseCidr(a), parseCidr(b))).toBe(expected);
});
