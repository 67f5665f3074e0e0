import { expect, test } from 'bun:test';
import { parseMoment } from '../../../../src/cli/node/times.ts';

const NOW = new Date(2026, 0, 31, 8, 30).getTime();
const HOUR = 3_600_000;

test.each([
  ['90s', NOW - 90_000],
  ['15min', NOW - HOUR / 4],
  ['2h', NOW - 2 * HOUR],
  ['3d ago', NOW - 72 * HOUR],
  ['today', new Date(2026, 0, 31).getTime()],
  ['yesterday', new Date(2026, 0, 30).getTime()],
  ['2026-01-30', new Date(2026, 0, 30).getTime()],
  ['2026-01-30T08:00Z', Date.UTC(2026, 0, 30, 8)],
])('parseMoment() reads "%s"', (text, moment) => {
  expect(parseMoment(text, NOW)).toBe(moment);
});

test.each(['', 'soon', '2', '-2h', '2026-13-40'])('parseMoment() refuses "%s"', text => {
  expect(() => parseMoment(text, NOW)).toThrow(`Cannot read time "${text}": expected such as 15min`);
});
