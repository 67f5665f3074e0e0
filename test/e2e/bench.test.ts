// Does the benchmark measure what it can where libcni cannot be built, and say what it cannot?
import { expect, test } from 'bun:test';
import { renderChart } from '../bench/chart.ts';
import { isMet, row } from '../bench/row.ts';
import { single, withSides } from '../bench/sides.ts';
import { REFERENCE_NAMES } from '../bench/start.ts';
import { noteUnmeasured, renderUnmeasured, UNMEASURED } from '../bench/unmeasured.ts';
import { describeRoot, requiresReference, testNeeding } from '../helpers/skip.ts';

testNeeding(
  'every plugin that is compared exists in the package of the reference',
  () => expect(requiresReference(...REFERENCE_NAMES)).toBeUndefined(),
  requiresReference('bridge'),
);

test('a line without a figure of the other side neither meets nor misses its target', () => {
  expect(isMet(row('chain', 'ms', Number.NaN, 7, 0.5))).toBeUndefined();
  expect(isMet(row('chain', 'ms', 10, 7, 0.5))).toBe(false);
});

test('the chart shows what a runtime sees, with its date, and leaves out what was not measured', () => {
  const rows = [
    row('runtime, cold: ADD', 'ms', 10, 12),
    row('runtime, warm: ADD', 'ms', 10, 3),
    row('runtime, cold: CHECK', 'ms', Number.NaN, 12),
    row('runtime, warm: CHECK', 'ms', Number.NaN, 3),
  ];
  const chart = renderChart(rows, new Date('2026-11-22T12:00:00Z'));
  expect([...chart.matchAll(/>([^<\n]+)<\/text>/g)].map(([, text]) => text)).toEqual([
    ...['ADD, reference (Go)', '1.00', 'ADD, ours', '1.20', 'ADD, ours with daemon', '0.30'],
    expect.stringMatching(/^measured 2026-11-22, \d+ cores, Linux \d/),
  ]);
});

test('what could not be measured is listed with the first line of the reason', () => {
  UNMEASURED.length = 0;
  noteUnmeasured('group "chain"', new Error('it failed\nat length'));
  expect(renderUnmeasured()).toBe('not measured: group "chain": it failed\n');
});

describeRoot(
  'the chain of the reference under our runner',
  () => {
    test('is measured without CHECK where its CHECK fails, and the reason is listed', async () => {
      UNMEASURED.length = 0;
      const parts = await withSides(['reference'], { libcni: undefined }, async ([runner]) => {
        if (runner === undefined) throw new Error('Cannot find the side');
        return (await single(runner)).round(0);
      });
      expect(parts).toMatchObject({ ADD: expect.any(Number), DEL: expect.any(Number) });
      expect('CHECK' in parts).toBe(UNMEASURED.length === 0);
      for (const line of UNMEASURED) expect(line).toStartWith('CHECK of the chain, reference: ');
    });
  },
  requiresReference('bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'),
);

describeRoot(
  'a chain whose executables a runtime starts',
  () => {
    test.each(['runtime-ours', 'runtime-reference'] as const)(
      '%s is run as libcni does, all verbs',
      async side => {
        const parts = await withSides([side], { libcni: undefined }, async ([runner]) => {
          if (runner === undefined) throw new Error('Cannot find the side');
          const times = await (await single(runner)).round(0);
          const links = await runner.lab.ip(runner.lab.host, 'link', 'show', 'type', 'veth');
          // Those of the two containers that stay attached.
          return { times, pairs: links.length };
        });
        const ms = expect.any(Number);
        expect(parts).toEqual({ times: { ADD: ms, CHECK: ms, DEL: ms }, pairs: 2 });
      },
    );
  },
  requiresReference('bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'),
);
