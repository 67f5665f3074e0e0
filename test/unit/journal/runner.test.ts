import { describe, expect, test } from 'bun:test';
import { endRunner, isAlive, startRunner } from '../../../src/journal/runner.ts';

describe('isAlive()', () => {
  test('tells operations of this process apart', () => {
    const [one, other] = [startRunner(), startRunner()];
    endRunner(one);
    expect([isAlive(one), isAlive(other)]).toEqual([false, true]);
    endRunner(other);
  });

  test('does not take another process with the same id for the one that died', () => {
    const runner = startRunner();
    expect(isAlive({ ...runner, pid: 1, op: 'x' })).toBe(false);
    endRunner(runner);
  });

  test('is false for a process that is gone', () => {
    const runner = startRunner();
    expect(isAlive({ ...runner, pid: 2 ** 22 + 1, op: 'x' })).toBe(false);
    endRunner(runner);
  });

  test('gives who cannot be seen from here some time', () => {
    const runner = { ...startRunner(), pidns: 'pid:[1]', op: 'x' };
    expect(isAlive(runner)).toBe(true);
    expect(isAlive({ ...runner, time: '2001-01-01T00:00:00Z' })).toBe(false);
    // The clock was set back since.
    expect(isAlive({ ...runner, time: new Date(Date.now() + 86_400_000).toISOString() })).toBe(false);
    expect(isAlive({ ...runner, time: 'soon' })).toBe(false);
  });
});
