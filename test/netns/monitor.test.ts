// Is no change missed between the notifications that were lost and those that are received again?
import { expect, test } from 'bun:test';
import path from 'node:path';
import { useLabs } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';

const FLOOD = path.join(import.meta.dirname, '../fixtures/monitor-flood.ts');

describeRoot('a monitor whose buffer is too small', () => {
  const makeLab = useLabs();

  test('reports the loss when it listens again, and what changes at that moment is noticed', async () => {
    const lab = await makeLab();
    const { stdout, stderr } = await lab.run(lab.host, [process.execPath, FLOOD], { timeoutMs: 30_000 });
    expect(stderr).toBe('');
    expect(stdout.trim().split('\n')).toEqual([expect.stringContaining('lost: ENOBUFS'), 'noticed']);
  });

  test('says once that it cannot listen, and goes on when it can', async () => {
    const lab = await makeLab();
    const argv = ['prlimit', '--nofile=128', process.execPath, FLOOD, 'starved'];
    const { stdout } = await lab.run(lab.host, argv, { timeoutMs: 30_000 });
    expect(stdout.trim().split('\n')).toEqual([
      expect.stringContaining('interrupted: '),
      expect.stringContaining('lost: ENOBUFS'),
      'noticed',
    ]);
  });
});
