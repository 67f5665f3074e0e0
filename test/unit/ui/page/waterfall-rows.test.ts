import { expect, test } from 'bun:test';
import { barOf, rowsOf } from '../../../../src/ui/page/waterfall-rows.ts';
import type { ShownRequest } from '../../../../src/ui/shown.ts';

test('plugins and deferred removals are in the order of time, named where they differ from the request', () => {
  const plugin = { network: 'n', index: 0, executable: '/a', verb: 'DEL', durationMs: 1, code: 0 };
  const record = {
    ...{ id: 'a', verb: 'DEL', network: 'n', containerId: 'c', ifname: 'eth0', netns: '' },
    startedAt: '2026-01-01T00:00:00Z',
    ...{ durationMs: 10, code: 0, warm: false },
    plugins: [
      { ...plugin, type: 'second', startMs: 4 },
      { ...plugin, type: 'first', startMs: 1, verb: 'CHECK', network: 'm', code: 11 },
    ],
    finishes: [{ network: 'n', verb: 'DEL', startMs: 6, durationMs: 2 }],
  } satisfies ShownRequest;
  expect(rowsOf(record).map(({ name, code }) => [name, code])).toEqual([
    ['CHECK first of m', 11],
    ['second', 0],
    ['removals', undefined],
  ]);
});

test.each([
  [0, 10, { x: 0, width: 100 }],
  [5, 2.5, { x: 50, width: 25 }],
  [5, 0, { x: 50, width: 0.8 }],
  [12, 5, { x: 99.2, width: expect.closeTo(0.8) }],
])('a bar from %d ms for %d ms of ten stays inside', (startMs, durationMs, bar) => {
  expect(barOf({ startMs, durationMs }, 10)).toEqual(bar);
});
