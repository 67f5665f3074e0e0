// Does a daemon with an idle time end when nothing is left to do, and is a call that meets its end not lost?
import { expect, test } from 'bun:test';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { startDaemon } from '../helpers/daemon.ts';
import { holdLeases } from '../helpers/held-leases.ts';
import { useLabs } from '../helpers/netns.ts';
import { bridgeOf, stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';

describeRoot('a daemon with --idle-exit', () => {
  const makeLab = useLabs();

  test('ends with 0 after that time, and leaves no socket; reading its state does not keep it', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab, '--idle-exit', '1');
    expect(await stateOf(daemon)).toMatchObject({ idleExitSeconds: 1 });
    const reading = setInterval(() => void stateOf(daemon).catch(() => {}), 100);
    expect(await daemon.exited).toBe(0);
    clearInterval(reading);
    expect(daemon.said()).toContain('no request for 1 s: the daemon exits');
    expect(readdirSync(path.dirname(daemon.socket)).filter(name => /wire|calls|sock$/.test(name))).toEqual(
      [],
    );
  });

  test('does not end during a call that takes longer', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const daemon = await startDaemon(lab, '--idle-exit', '1');
    const adding = chain.add(container);
    await waiter('--worker');
    await Bun.sleep(2_500);
    expect(await stateOf(daemon)).toMatchObject({ running: 1 });
    release();
    expect((await adding).ips).toHaveLength(2);
    expect(await daemon.exited).toBe(0);
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
  });

  test('loses no call that arrives while it ends', async () => {
    const lab = await makeLab();
    const conf = { ...bridgeOf(lab), cniVersion: '1.1.0' };
    const container = await lab.container();
    let served = 0;
    for (let round = 0; round < 4; round++) {
      const daemon = await startDaemon(lab, '--idle-exit', '0.3');
      let ended = false;
      void daemon.exited.then(() => {
        ended = true;
      });
      await Bun.sleep(200);
      // One at a time would keep it: they all begin within its last moments, before it has answered any.
      const calls = Array.from({ length: 16 }, async (_, i) => {
        await Bun.sleep(i * 15);
        const before = !ended;
        const finished = await lab.plugin('bridge', { command: 'STATUS', conf, container });
        if (before && finished.exitCode === 0) served++;
        return [finished.exitCode, finished.stdout];
      });
      for (const one of await Promise.all(calls)) expect(one).toEqual([0, '']);
      expect(await daemon.exited).toBe(0);
    }
    expect(served).toBeGreaterThan(0);
  });
});
