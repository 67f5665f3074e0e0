import { expect, test } from 'bun:test';
import { Reading } from '../../../src/ui/reading.ts';

/** A clock that stands still, and a reading that takes a time by it. */
function scene(tookMs: number) {
  const clock = { now: 0 };
  let times = 0;
  const reading = new Reading(
    async () => {
      clock.now += tookMs;
      return `reading ${++times}`;
    },
    1_000,
    () => clock.now,
  );
  return { clock, reading, text: async () => (await reading.get()).text };
}

test('readers at the same time share one reading', async () => {
  const { reading } = scene(5);
  const [a, b] = await Promise.all([reading.get(), reading.get()]);
  expect(a).toBe(b);
  expect(reading.latest).toBe(a);
});

test('a fast reading rests for the shortest time, a slow one for nine times as long as it took', async () => {
  for (const [tookMs, restMs] of [
    [5, 1_000],
    [400, 3_600],
  ] as const) {
    const { clock, text } = scene(tookMs);
    expect(await text()).toBe('reading 1');
    clock.now += restMs - 1;
    expect(await text()).toBe('reading 1');
    clock.now += 1;
    expect(await text()).toBe('reading 2');
  }
});

test('a change shortens the rest, but not below what the reading took', async () => {
  const { clock, reading, text } = scene(400);
  await text();
  reading.hurry(100);
  clock.now += 399;
  expect(await text()).toBe('reading 1');
  clock.now += 1;
  expect(await text()).toBe('reading 2');
});

test('a change during a reading leads to another one soon', async () => {
  const { clock, reading, text } = scene(400);
  const first = text();
  reading.hurry(500);
  await first;
  clock.now += 499;
  expect(await text()).toBe('reading 1');
  clock.now += 1;
  expect(await text()).toBe('reading 2');
  clock.now += 3_599;
  expect(await text()).toBe('reading 2');
});

test('a reading that fails is tried again', async () => {
  let fails = true;
  const reading = new Reading(async () => {
    if (fails) throw new Error('not yet');
    return 'done';
  }, 1_000);
  await expect(reading.get()).rejects.toThrow('not yet');
  fails = false;
  expect((await reading.get()).text).toBe('done');
});

test('the tag follows the content', async () => {
  const of = async (text: string) => (await new Reading(async () => text, 0).get()).etag;
  expect(await of('a')).toBe(await of('a'));
  expect(await of('a')).not.toBe(await of('b'));
  expect(await of('a')).toMatch(/^"[\w-]{22}"$/);
});
