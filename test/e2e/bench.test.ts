// Does the benchmark measure what it can where libcni cannot be built, and say what it cannot?
import { expect, test } from 'bun:test';
import { isMet, row } from '../bench/row.ts';
import { single, withSides } from '../bench/sides.ts';
import { noteUnmeasured, renderUnmeasured, UNMEASURED } from '../bench/unmeasured.ts';
import { describeRoot, requiresReference } from '../helpers/skip.ts';

test('a line without a figure of the other side neither meets nor misses its target', () => {
  expect(isMet(row('chain', 'ms', Number.NaN, 7, 0.5))).toBeUndefined();
  expect(isMet(row('chain', 'ms', 10, 7, 0.5))).toBe(false);
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
