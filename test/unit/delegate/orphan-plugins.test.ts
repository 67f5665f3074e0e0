import { expect, test } from 'bun:test';
import { RUNNER_VARIABLE } from '../../../src/attachments/lock.ts';
import { endOrphanPlugins } from '../../../src/delegate/orphan-plugins.ts';
import { untilStarted } from '../../helpers/until.ts';

const DEAD = { pid: 999_999, start: '1', pidns: '', op: '999999-1-1', time: '' };

test('endOrphanPlugins() ends only plugins of the ADD whose runner has died', async () => {
  const id = `orphan-${process.pid}`;
  const start = (env: Record<string, string>) =>
    Bun.spawn(['sleep', '60'], { env: { ...env, PATH: process.env.PATH ?? '' }, detached: true });
  const add = {
    [RUNNER_VARIABLE]: '999999-1',
    CNI_COMMAND: 'ADD',
    CNI_CONTAINERID: id,
    CNI_IFNAME: 'net1',
  };
  const { [RUNNER_VARIABLE]: _, ...ofOthers } = add;
  const orphans = [start(add), start({ ...add, CNI_IFNAME: 'eth0' })];
  const others = [
    start({ ...add, CNI_COMMAND: 'DEL' }),
    start({ ...add, CNI_IFNAME: 'net2' }),
    start({ ...add, CNI_CONTAINERID: `${id}0` }),
    start({ OTHER: `CNI_CONTAINERID=${id}` }),
    // Another runtime attaches the same container, directly or with a live runner of ours.
    start(ofOthers),
    start({ ...add, [RUNNER_VARIABLE]: '999999-2' }),
  ];
  for (const child of [...orphans, ...others]) await untilStarted(child, 'PATH');
  try {
    await endOrphanPlugins({ containerId: id, runners: [DEAD] }, ['eth0', 'net1']);
    await Promise.all(orphans.map(child => child.exited));
    expect(orphans.map(child => child.signalCode)).toEqual(['SIGKILL', 'SIGKILL']);
    expect(others.map(child => child.exitCode ?? child.signalCode)).toEqual(others.map(() => null));
  } finally {
    for (const child of [...orphans, ...others]) child.kill('SIGKILL');
  }
});
