import { describe, expect, test } from 'bun:test';
import {
  cidrContains,
  cidrsOverlap,
  findCidr,
  lastOf,
  netmaskOf,
  networkOf,
  parseCidr,
  renderCidr,
  subnetOf,
} from '../../../src/net/cidr.ts';
import { parseIp, renderIp } from '../../../src/net/ip.ts';

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
