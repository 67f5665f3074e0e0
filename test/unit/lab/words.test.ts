import { describe, expect, spyOn, test } from 'bun:test';
import { count, localTime, renderRate, renderTable, renderTime } from '../../../src/lab/words.ts';

describe('renderRate()', () => {
  test.each([
    [999, '999 bit'],
    [1_000, '1 kbit'],
    [512_000, '512 kbit'],
    [9_812_345, '9.81 Mbit'],
    [20e6, '20 Mbit'],
    [4.0961e9, '4.1 Gbit'],
  ])('renders %d bits per second as %s', (bits, words) => {
    expect(renderRate(bits)).toBe(words);
  });
});

describe('renderTime()', () => {
  test('changes its unit at one second', () => {
    expect([renderTime(0.14), renderTime(999.9), renderTime(1_234)]).toEqual([
      '0.1 ms',
      '999.9 ms',
      '1.23 s',
    ]);
  });
});

test('localTime() renders a moment without knowledge of locales, which is slow to load', () => {
  const locale = spyOn(Date.prototype, 'toLocaleString');
  expect(localTime(new Date(2026, 0, 31, 8, 5).getTime())).toBe('2026-01-31 08:05:00');
  expect(locale).not.toHaveBeenCalled();
  locale.mockRestore();
});

describe('count()', () => {
  test('distinguishes singular and plural', () => {
    expect([count(1, 'plugin'), count(2, 'plugin'), count(0, 'box', 'boxes')]).toEqual([
      '1 plugin',
      '2 plugins',
      '0 boxes',
    ]);
  });
});

const ROWS = [
  ['NAME', 'ADDRESS'],
  ['a-rather-long-name', '10.88.0.2'],
];

test('renderTable() breaks nothing without a width', () => {
  expect(renderTable(ROWS)).toBe('NAME                ADDRESS\na-rather-long-name  10.88.0.2\n');
});

test('renderTable() continues the widest cells below, between words or behind a joint, and cuts none', () => {
  expect(renderTable(ROWS, 20)).toBe('NAME       ADDRESS\na-rather-  10.88.0.2\nlong-name\n');
  const words = renderTable([...ROWS, ['b', 'in use by another pod']], 36);
  expect(words).toBe(
    'NAME                ADDRESS\na-rather-long-name  10.88.0.2\nb                   in use by\n                    another pod\n',
  );
  expect(renderTable([['ID'], ['0123456789']], 6)).toBe('ID\n012345\n6789\n');
});
