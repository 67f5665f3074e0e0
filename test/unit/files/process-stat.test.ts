import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { isRunning, readProcessStat, startedAt, thisProcess } from '../../../src/files/process-stat.ts';
import { requires, requiresRoot, testNeeding } from '../../helpers/skip.ts';
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

testNeeding(
  'isRunning() cannot judge another time namespace, where processes started at other times',
  () => {
    const file = path.resolve(import.meta.dir, '../../../src/files/process-stat.ts');
    const code = `import { isRunning } from '${file}'; console.log(isRunning(${JSON.stringify(thisProcess())}));`;
    const argv = ['unshare', '--time', '--boottime', '100000', process.execPath, '-e', code];
    const { stdout, stderr } = Bun.spawnSync(argv);
    expect([stdout.toString(), stderr.toString()]).toEqual(['undefined\n', '']);
  },
  requiresRoot(),
  requires('unshare'),
);

test('no process is dead, or without an environment, because there is no descriptor to look at it', async () => {
  const said = await askStarved('/nonexistent');
  expect(said.map(one => one.isRunning)).toEqual(['undefined', 'true']);
  expect(said.map(one => one.isOfTest)).toEqual(['Cannot read "/proc', 'true']);
});

test('startedAt() is before this program was executed, and behind its parent', () => {
  expect(startedAt()).toBeLessThanOrEqual(performance.timeOrigin);
  expect(startedAt()).toBeGreaterThan(performance.timeOrigin - 600_000);
});

const AGES = `
  import { ageMsOf, readProcessStat, startedAt } from '${path.resolve(import.meta.dir, '../../../src/files/process-stat.ts')}';
  const ages = [ageMsOf(readProcessStat(process.pid)), ageMsOf(readProcessStat(process.ppid)), Date.now() - startedAt()];
  console.log(JSON.stringify(ages));
`;

for (const [what, mount] of [
  ['that of a system container, as lxcfs shows it', 'echo 0.5 0.5 > "$0" && mount --bind "$0" /proc/uptime'],
  ['missing', 'mount -t proc -o subset=pid none /proc'],
]) {
  testNeeding(
    `ages are right where /proc/uptime is ${what}`,
    () => {
      const file = path.join(mkdtempSync(path.join(tmpdir(), 'uptime-')), 'uptime');
      const script = `${mount} && "$1" -e "$2"; exit $?`;
      const argv = ['unshare', '-m', 'sh', '-c', script, file, process.execPath, AGES];
      const { stdout, stderr } = Bun.spawnSync(argv);
      rmSync(path.dirname(file), { recursive: true });
      expect(stderr.toString()).toBe('');
      for (const age of JSON.parse(stdout.toString())) {
        expect(age).toBeGreaterThan(0);
        expect(age).toBeLessThan(60_000);
      }
    },
    requiresRoot(),
    requires('unshare', 'mount'),
  );
}
