// Are sweeps quick after a change that matters, and rare while changes do not matter?
import { expect, test } from 'bun:test';
import { SweepPacer } from '../../../src/watch/sweeps.ts';

/** Sweeps for a time, with changes all the time. @returns milliseconds that sweeps took */
function sweepFor(pacer: SweepPacer, ms: number, from: number, tookMs: number, isLikely: boolean): number {
  let [now, sum] = [from, 0];
  while (now < from + ms) {
    pacer.want(isLikely);
    const pause = pacer.due(now) ?? 0;
    now += pause;
    pacer.begun();
    now += tookMs;
    sum += tookMs;
    pacer.ended(now, tookMs, true);
  }
  return sum;
}

test('nothing is due until a sweep is wanted', () => {
  expect(new SweepPacer().due(0)).toBeUndefined();
});

test('needless sweeps take two seconds at once and a fiftieth of the time, however long one takes', () => {
  for (const tookMs of [20, 500, 10_000]) {
    const hour = 3_600_000;
    const sum = sweepFor(new SweepPacer(), hour, 0, tookMs, false);
    // The first and the last may exceed it.
    expect(sum).toBeLessThanOrEqual(hour / 50 + 2_000 + 2 * tookMs);
  }
});

test('changes now and then are acted on within a second, though the last sweep found nothing', () => {
  const pacer = new SweepPacer();
  for (let i = 0; i < 5; i++) {
    pacer.want(false);
    expect(pacer.due(i * 3_000)).toBe(0);
    pacer.begun();
    pacer.ended(i * 3_000 + 300, 300, true);
  }
});

test('a change that has removed a part of attachments does not wait for those that may have', () => {
  const pacer = new SweepPacer();
  sweepFor(pacer, 60_000, 0, 400, false);
  pacer.want(false);
  expect(pacer.due(62_000)).toBeGreaterThan(5_000);
  pacer.want(true);
  expect(pacer.due(62_000)).toBeLessThanOrEqual(1_000);
});
