// How many bits are in a text, and which texts are refused?
import { describe, expect, test } from 'bun:test';
import { parseAmount } from '../../../../plugins/bandwidth/amount.ts';

describe('parseAmount()', () => {
  test.each([
    ['10Mbit', 10_000_000],
    ['1Gbit', 1_000_000_000],
    ['500kbit', 500_000],
    ['1.5 Gbit/s', 1_500_000_000],
    ['8bit', 8],
    ['1Kibit', 1_024],
    ['64KiB', 524_288],
    ['1MB', 8_000_000],
    ['2.5MB/s', 20_000_000],
    ['100B', 800],
    ['4Tbit', 4_000_000_000_000],
    ['0bit', 0],
  ])('of "%s" is %d bits', (text, bits) => {
    expect(parseAmount('ingressRate', text)).toBe(bits);
  });

  test.each([
    '',
    '10',
    'Mbit',
    '10Mb',
    '10mbit',
    '10mbps',
    '-1Mbit',
    '1e3bit',
    '10 Mbit/h',
    '٣Mbit',
    ' 1Mbit',
    '1Kbit\n',
  ])('refuses "%s"', text => {
    expect(() => parseAmount('ingressRate', text)).toThrow(
      `Cannot use "ingressRate": "${text}": expected a number of bits`,
    );
  });

  test('refuses what a number cannot hold', () => {
    expect(() => parseAmount('egressRate', '9999999Tbit')).toThrow('at most 9007199254740991 bits');
  });
});
