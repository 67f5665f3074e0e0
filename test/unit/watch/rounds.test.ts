// How often are attachments checked that nothing has happened to?
import { expect, test } from 'bun:test';
import { startRounds } from '../../../src/watch/rounds.ts';

const EVERY_MS = 100;

/** When each of the first rounds began, with attachments whose checks take longer than a round may. */
async function beginnings(attachments: readonly string[], rounds: number): Promise<number[]> {
  const begun: number[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = startRounds({
    everyMs: () => EVERY_MS,
    list() {
      begun.push(performance.now());
      return attachments;
    },
    checkedAt: () => undefined,
    visit: () => Bun.sleep(5),
    async atEnd() {
      if (begun.length === rounds) resolve();
    },
  });
  await promise;
  await stop();
  return begun;
}

test('a round that could not check all attachments is followed by a longer one, much later', async () => {
  const [first = 0, second = 0] = await beginnings(['a', 'b', 'c', 'd'], 2);
  // Not the upper bound: a busy machine may be late.
  expect(second - first).toBeGreaterThanOrEqual(EVERY_MS * 2);
});

test('rounds that check all keep their interval', async () => {
  const begun = await beginnings(['a'], 6);
  const gaps = begun.slice(1).map((at, i) => at - (begun[i] ?? 0));
  expect(Math.min(...gaps)).toBeLessThan(EVERY_MS * 2.4);
});
