// Are sweeps quick after a change that matters, and rare while changes do not matter?
import { expect, test } from 'bun:test';
import { Allowance, SweepPacer, startRounds, visitInside } from '../../../src/watch/pacing.ts';
import { until } from '../../helpers/until.ts';

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

test('two sweeps are a second apart, and as long as the last one took', () => {
  for (const [tookMs, pause] of [
    [20, 1_000],
    [5_000, 5_000],
  ] as const) {
    const pacer = new SweepPacer();
    pacer.ended(10_000, tookMs, false);
    pacer.want(true);
    expect(pacer.due(10_000)).toBe(pause);
  }
});

/** Of a visit that finds nothing. So much is allowed again only after two seconds, which a busy machine may take between two lines. */
const VISIT_MS = 50;

function harness(left: number) {
  const allowance = new Allowance(50);
  allowance.spend(performance.now(), 2_000 - left);
  const [visited, pauses] = [[] as string[], [] as number[]];
  const resume: (() => void)[] = [];
  let found = 0;
  const ask = visitInside({
    allowance,
    async visit(key) {
      visited.push(key);
      if (key.startsWith('damaged')) found += 1;
      else await Bun.sleep(VISIT_MS);
    },
    found: () => found,
    later(work, ms) {
      pauses.push(ms);
      resume.push(work);
    },
  });
  return { ask, visited, pauses, resume };
}

test('each is visited once, however often it is asked for', async () => {
  const { ask, visited } = harness(1_000);
  ask(['a', 'b', 'a']);
  ask(['b']);
  await until(() => visited.length >= 2);
  await Bun.sleep(2 * VISIT_MS);
  expect(visited).toEqual(['a', 'b']);
});

test('without allowance they wait, once for all; one that changes again has its turn after the others', async () => {
  const { ask, visited, pauses, resume } = harness(-1_000);
  ask(['noisy']);
  ask(['quiet', 'noisy']);
  await Bun.sleep(20);
  expect([visited, pauses.length, resume.length]).toEqual([[], 1, 1]);
  expect(pauses[0]).toBeGreaterThan(4_000);
});

test('visits that find damage cost no allowance', async () => {
  const { ask, visited, pauses } = harness(3);
  ask(['damaged 1', 'damaged 2', 'damaged 3', 'sound', 'next']);
  await until(() => pauses.length > 0);
  expect(visited).toEqual(['damaged 1', 'damaged 2', 'damaged 3', 'sound']);
  expect(pauses).toHaveLength(1);
});

const EVERY_MS = 100;

/** When each round began until these are enough, with attachments whose checks take longer than a round may. */
async function beginnings(
  attachments: readonly string[],
  areEnough: (begun: readonly number[]) => boolean,
): Promise<number[]> {
  const begun: number[] = [];
  const stop = startRounds({
    everyMs: () => EVERY_MS,
    list() {
      begun.push(performance.now());
      return attachments;
    },
    checkedAt: () => undefined,
    visit: () => Bun.sleep(5),
    atEnd: async () => undefined,
  });
  await until(() => areEnough(begun)).finally(stop);
  return begun;
}

test('a round that could not check all attachments is followed by a longer one, much later', async () => {
  const [first = 0, second = 0] = await beginnings(['a', 'b', 'c', 'd'], begun => begun.length > 1);
  // Not the upper bound: a busy machine may be late.
  expect(second - first).toBeGreaterThanOrEqual(EVERY_MS * 2);
});

test('rounds that check all keep their interval', async () => {
  // A busy machine may be late, but not each time.
  await beginnings(['a'], begun => begun.some((at, i) => i > 0 && at - (begun[i - 1] ?? 0) < EVERY_MS * 2.4));
});

test('those are checked first that were not checked for the longest time, and none that just was', async () => {
  const now = performance.now();
  const checked = new Map([
    ['minute', now - 60_000],
    ['recent', now + 3_600_000],
    ['hour', now - 3_600_000],
  ]);
  const visited: string[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = startRounds({
    everyMs: () => EVERY_MS,
    list: () => ['minute', 'recent', 'never', 'hour'],
    checkedAt: key => checked.get(key),
    async visit(key) {
      visited.push(key);
      checked.set(key, performance.now());
    },
    async atEnd() {
      if (visited.length >= 3) resolve();
    },
  });
  await promise;
  await stop();
  expect(visited.slice(0, 3)).toEqual(['never', 'hour', 'minute']);
  expect(visited).not.toContain('recent');
});
