import { expect, test } from 'bun:test';
import { isRunning, readProcessStat, startedAt, thisProcess } from '../../../src/files/process-stat.ts';
import { askStarved } from '../../helpers/starved.ts';
import { until } from '../../helpers/until.ts';

test('isRunning() is true for this process, and false for another one with its id', () => {
  const own = thisProcess();
  expect(own.pid).toBe(process.pid);
  expect([isRunning(own), isRunning({ ...own, start: '1' })]).toEqual([true, false]);
});

test('isRunning() is false for one that has exited, even before its parent reaps it', async () => {
  const child = Bun.spawn(['sh', '-c', 'sleep 0 & echo $!; exec sleep 600'], { stdout: 'pipe' });
  const text = new TextDecoder().decode((await child.stdout.getReader().read()).value);
  const pid = Number(text);
  await until(() => readProcessStat(pid)?.state === 'Z');
  const start = readProcessStat(pid)?.start ?? '';
  expect(isRunning({ ...thisProcess(), pid, start })).toBe(false);
  child.kill('SIGKILL');
  await child.exited;
});

test('isRunning() cannot judge another process id namespace', () => {
  expect(isRunning({ ...thisProcess(), pidns: 'pid:[1]' })).toBeUndefined();
});

test('no process is dead, or without an environment, because there is no descriptor to look at it', async () => {
  const said = await askStarved('/nonexistent');
  expect(said.map(one => one.isRunning)).toEqual(['undefined', 'true']);
  expect(said.map(one => one.isOfTest)).toEqual(['Cannot read "/proc', 'true']);
});

test('startedAt() is before this program was executed, and behind its parent', () => {
  expect(startedAt()).toBeLessThanOrEqual(performance.timeOrigin);
  expect(startedAt()).toBeGreaterThan(performance.timeOrigin - 600_000);
});
