import { expect, test } from 'bun:test';
import { renderAge } from '../../../src/node/words.ts';

const NOW = new Date(2026, 0, 31, 8, 30).getTime();
const HOUR = 3_600_000;

test.each([
  [-5_000, '0 s'],
  [59_000, '59 s'],
  [HOUR - 1, '59 min'],
  [47 * HOUR, '47 h'],
  [49 * HOUR, '2 days'],
])('renderAge() of %d ms', (ms, words) => {
  expect(renderAge(new Date(NOW - ms).toISOString(), NOW)).toBe(words);
});
