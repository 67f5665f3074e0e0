// Is a long wait as long as it can be, instead of none?
import { expect, test } from 'bun:test';
import { LONGEST_MS, letGoFirst, pause, startTimer, timeLimit } from '../../src/wait.ts';

test.each([LONGEST_MS + 1, Date.now(), Number.POSITIVE_INFINITY, Number.NaN])(
  'a timer of %d ms does not end at once',
  async ms => {
    const ended: string[] = [];
    const timer = startTimer(() => ended.push('timer'), ms);
    const signal = timeLimit(ms);
    await Bun.sleep(20);
    clearTimeout(timer);
    expect([ended, signal.aborted]).toEqual([[], false]);
  },
);

test('a time that has passed is none', async () => {
  await pause(-1);
  await new Promise<void>(resolve => startTimer(resolve, -5));
});

test('what lets others go first begins once they are done, or after its time', async () => {
  const order: string[] = [];
  let isBusy = true;
  const after = letGoFirst(() => isBusy, 60_000).then(() => order.push('after'));
  const late = letGoFirst(() => true, 40).then(() => order.push('late'));
  await late;
  order.push('done');
  isBusy = false;
  await after;
  expect(order).toEqual(['late', 'done', 'after']);
});
