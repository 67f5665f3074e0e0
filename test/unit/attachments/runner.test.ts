import { describe, expect, test } from 'bun:test';
import { endRunner, isAlive, startRunner } from '../../../src/attachments/runner.ts';

describe('isAlive()', () => {
  test('distinguishes operations of this process', () => {
    const [one, other] = [startRunner(), startRunner()];
    endRunner(one);
    expect([isAlive(one), isAlive(other)]).toEqual([false, true]);
    endRunner(other);
  });

  test('does not mistake another process with the same id for the dead one', () => {
    const runner = startRunner();
    expect(isAlive({ ...runner, pid: 1, op: 'x' })).toBe(false);
    endRunner(runner);
  });

  test('is false for a process that has exited', () => {
    const runner = startRunner();
    expect(isAlive({ ...runner, pid: 2 ** 22 + 1, op: 'x' })).toBe(false);
    endRunner(runner);
  });

  test('gives processes that are invisible from here some time', () => {
    const runner = { ...startRunner(), pidns: 'pid:[1]', op: 'x' };
    expect(isAlive(runner)).toBe(true);
    expect(isAlive({ ...runner, time: '2001-01-01T00:00:00Z' })).toBe(false);
    // The clock was set back since.
    expect(isAlive({ ...runner, time: new Date(Date.now() + 86_400_000).toISOString() })).toBe(false);
    expect(isAlive({ ...runner, time: 'soon' })).toBe(false);
  });
});
