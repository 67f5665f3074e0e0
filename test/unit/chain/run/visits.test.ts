// Do visits that have to wait hold up no others?
import { expect, test } from 'bun:test';
import { VisitQueue } from '../../../../src/chain/run/visits.ts';
import { until } from '../../../helpers/until.ts';

/** Longer than a busy machine takes between two lines. */
const REST_MS = 1_000;

/** Lets what can happen happen. */
const settle = () => new Promise(resolve => setTimeout(resolve, 5));

function harness(restsMs: Readonly<Record<string, number>>) {
  const begun: string[] = [];
  const ended: string[] = [];
  const queue = new VisitQueue(
    async (key, rest) => {
      begun.push(key);
      const ms = restsMs[key];
      if (ms !== undefined) await rest(ms);
      ended.push(key);
    },
    { atOnce: 2, groupOf: key => key.slice(0, 1) },
  );
  return { queue, begun, ended };
}

test('while two wait for what may be a DEL, others are visited, and the queue counts as settled', async () => {
  const { queue, begun, ended } = harness({ a: REST_MS, b: REST_MS });
  queue.add(['a', 'b', 'c', 'd']);
  await queue.whenIdle();
  await settle();
  expect([begun, ended]).toEqual([
    ['a', 'b', 'c', 'd'],
    ['c', 'd'],
  ]);
  expect(queue.isIdle).toBe(true);
  await queue.close();
  expect(ended).toEqual(['c', 'd', 'a', 'b']);
});

test('a visit that is asked for while one waits takes place after it, and holds up no others', async () => {
  const { queue, begun } = harness({ a: REST_MS });
  queue.add(['a']);
  await settle();
  queue.add(['a', 'b']);
  await queue.whenIdle();
  expect(begun).toEqual(['a', 'b']);
  await until(() => begun.length > 2);
  expect(begun).toEqual(['a', 'b', 'a']);
  await queue.close();
});

test('visits that hang hold up those of their group alone', async () => {
  const hangs = Promise.withResolvers<void>();
  const begun: string[] = [];
  const ended: string[] = [];
  const queue = new VisitQueue(
    async key => {
      begun.push(key);
      if (key.startsWith('h')) await hangs.promise;
      ended.push(key);
    },
    { atOnce: 2, groupOf: key => key.slice(0, 1) },
  );
  queue.add(['h1', 'h2', 'h3', 'a', 'b', 'c']);
  await queue.whenIdle();
  expect([begun, ended]).toEqual([
    ['h1', 'h2', 'a', 'b', 'c'],
    ['a', 'b', 'c'],
  ]);
  queue.add(['d']);
  await queue.whenIdle();
  expect([ended, queue.has('h3')]).toEqual([['a', 'b', 'c', 'd'], true]);
  hangs.resolve();
  await queue.ended();
  expect(ended.slice(4).toSorted()).toEqual(['h1', 'h2', 'h3']);
});
