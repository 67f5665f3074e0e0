import { describe, expect, test } from 'bun:test';
import {
  addressesOf,
  classlessRoutesOf,
  nameOf,
  prefixOf,
  searchOf,
  staticRoutesOf,
  textOf,
} from '../../../../../plugins/dhcp/codec/values.ts';
import { renderIp } from '../../../../../src/net/ip.ts';

const bytes = (...values: number[]) => Uint8Array.from(values);
const text = (value: string) => new TextEncoder().encode(value);
const routes = (found: ReturnType<typeof staticRoutesOf> | undefined) =>
  found?.map(
    ({ dst, gateway }) => `${renderIp(dst.ip)}/${dst.prefix} ${gateway ? renderIp(gateway) : 'on link'}`,
  );

describe('a subnet mask', () => {
  test.each([
    [bytes(255, 255, 255, 0), 24],
    [bytes(255, 255, 255, 255), 32],
    [bytes(128, 0, 0, 0), 1],
    [bytes(0, 0, 0, 0), undefined],
    [bytes(255, 0, 255, 0), undefined],
    [bytes(255, 255, 255), undefined],
  ])('%j has the length %p', (mask, length) => {
    expect(prefixOf(mask)).toBe(length);
  });
});

describe('classless routes', () => {
  // RFC 3442, "DHCP Client Behavior"
  test('have as many bytes as their prefix needs', () => {
    const value = [
      0, 10, 77, 0, 1, 8, 10, 10, 77, 0, 2, 25, 10, 27, 129, 0, 10, 77, 0, 3, 32, 192, 0, 2, 9, 0, 0, 0, 0,
    ];
    expect(routes(classlessRoutesOf(bytes(...value)))).toEqual([
      '0.0.0.0/0 10.77.0.1',
      '10.0.0.0/8 10.77.0.2',
      '10.27.129.0/25 10.77.0.3',
      '192.0.2.9/32 on link',
    ]);
  });

  test('that are cut or have a longer prefix than an address are no list', () => {
    expect(classlessRoutesOf(bytes(24, 10, 0, 0, 1, 2, 3))).toBeUndefined();
    expect(classlessRoutesOf(bytes(33, 10, 0, 0, 1, 1, 1, 1, 1, 1))).toBeUndefined();
  });

  test('to the pod itself, to multicast and through impossible gateways are left out', () => {
    const value = [8, 127, 10, 77, 0, 1, 4, 224, 10, 77, 0, 1, 8, 11, 127, 0, 0, 1, 8, 12, 10, 77, 0, 1];
    expect(routes(classlessRoutesOf(bytes(...value)))).toEqual(['12.0.0.0/8 10.77.0.1']);
  });

  test('are bounded in number', () => {
    const many = Array.from({ length: 500 }, (_, i) => [24, 10, i >> 8, i & 255, 10, 77, 0, 1]).flat();
    expect(classlessRoutesOf(bytes(...many))).toHaveLength(64);
  });
});

test('static routes have the prefix of their class, and no default route', () => {
  const value = [
    10, 1, 0, 0, 10, 77, 0, 2, 172, 16, 0, 0, 10, 77, 0, 3, 192, 168, 1, 0, 10, 77, 0, 4, 0, 0, 0, 0, 1, 1, 1,
    1,
  ];
  expect(routes(staticRoutesOf(bytes(...value)))).toEqual([
    '10.0.0.0/8 10.77.0.2',
    '172.16.0.0/16 10.77.0.3',
    '192.168.1.0/24 10.77.0.4',
  ]);
});

describe('names', () => {
  test.each([
    ['lan.example', 'lan.example'],
    ['lan.example.\0', 'lan.example'],
    ['a\nnameserver 6.6.6.6', undefined],
    ['-a.example', undefined],
    ['a..b', undefined],
    ['', undefined],
    [`${'a'.repeat(64)}.example`, undefined],
  ])('%j is %p', (given, name) => {
    expect(nameOf(text(given))).toBe(name as never);
  });

  // RFC 3397, section 2: a pointer to the end of the first name
  test('of a search list may be compressed', () => {
    const value = [
      3,
      ...text('eng'),
      5,
      ...text('apple'),
      3,
      ...text('com'),
      0,
      9,
      ...text('marketing'),
      0xc0,
      4,
    ];
    expect(searchOf(bytes(...value))).toEqual(['eng.apple.com', 'marketing.apple.com']);
  });

  test('of a search list with pointers that lead nowhere, or in a circle, end it', () => {
    expect(searchOf(bytes(1, 97, 0xc0, 0))).toEqual([]);
    expect(searchOf(bytes(0xc0, 0))).toEqual([]);
    expect(searchOf(bytes(1, 97, 0, 0xc0, 200))).toEqual(['a']);
    expect(searchOf(bytes(1, 97, 0, 9, 98))).toEqual(['a']);
  });
});

test('addresses that no host can have are left out', () => {
  const value = bytes(0, 0, 0, 0, 127, 0, 0, 1, 224, 0, 0, 1, 255, 255, 255, 255, 10, 0, 0, 1, 9, 9);
  expect(addressesOf(value).map(renderIp)).toEqual(['10.0.0.1']);
});

test('the text of a server is printable and cut', () => {
  expect(textOf(text('no\nway\x1b[31m'))).toBe('no?way?[31m');
  expect(textOf(new Uint8Array(900).fill(65))).toHaveLength(200);
});
