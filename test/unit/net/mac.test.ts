import { expect, test } from 'bun:test';
import { isUnicastMac, parseMac, renderMac } from '../../../src/net/mac.ts';

test.each([
  ['0a:58:0a:01:02:03', '0a:58:0a:01:02:03'],
  ['0A-58-0A-01-02-03', '0a:58:0a:01:02:03'],
  ['0a58.0a01.0203', '0a:58:0a:01:02:03'],
])('parseMac() reads %s', (text, expected) => {
  expect(renderMac(parseMac(text))).toBe(expected);
});

test.each([
  ...['', '0a:58:0a:01:02', '0a:58:0a:01:02:03:04', '0a:58:0a:01:02:3', 'g0:58:0a:01:02:03', '0a580a010203'],
  ...['0a58.0a01', ' 0a:58:0a:01:02:03', '0a:58:0a:01:02:03\n'],
])('parseMac() refuses %j', text => {
  expect(() => parseMac(text)).toThrow(`Cannot read hardware address "${text}"`);
});

test.each([
  ['0a:58:0a:01:02:03', true],
  ['00:00:00:00:00:01', true],
  ['00:00:00:00:00:00', false],
  ['01:00:5e:00:00:01', false],
  ['ff:ff:ff:ff:ff:ff', false],
])('isUnicastMac(%s) is %p', (text, expected) => {
  expect(isUnicastMac(parseMac(text))).toBe(expected);
});
