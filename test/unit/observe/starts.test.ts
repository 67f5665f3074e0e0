// Are plugins of a chain shown one after the other, although answers may be read together?
import { expect, test } from 'bun:test';
import { settleStarts } from '../../../src/observe/starts.ts';

const called = (link: string, startMs: number, durationMs: number, network = 'n') => ({
  link,
  network,
  verb: 'ADD',
  startMs,
  durationMs,
});

const startsOf = (plugins: Parameters<typeof settleStarts>[0]) =>
  settleStarts(plugins).map(({ startMs }) => startMs);

test('a plugin whose answer was read late ended before the next one started', () => {
  // Both answers were read at 20 ms.
  expect(startsOf([called('bridge', 0, 5), called('portmap', 18, 2), called('bandwidth', 10, 10)])).toEqual([
    0, 8, 10,
  ]);
});

test('starts that fit remain, and chains that run side by side do not move each other', () => {
  const plugins = [called('a', 0, 5), called('x', 1, 9, 'other'), called('b', 6, 3)];
  expect(settleStarts(plugins)).toEqual(plugins);
});

test('no plugin starts before the request', () => {
  expect(startsOf([called('a', 5, 4), called('b', 2, 5)])).toEqual([0, 2]);
});
