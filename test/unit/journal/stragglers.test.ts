import { afterEach, describe, expect, test } from 'bun:test';
import { RUNNER_VARIABLE, WORKER_VARIABLE } from '../../../src/journal/runner.ts';
import { findStragglers } from '../../../src/journal/stragglers.ts';

const DEAD = { pid: 999_999, start: '1', pidns: '', op: '999999-1-1', time: '' };
const RECORD = { containerId: 'c1', ifname: 'eth0', runners: [DEAD] };
const children: Bun.Subprocess[] = [];
afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill('SIGKILL');
    await child.exited;
  }
});

/** A process with this environment, which is there when its pipe is. */
async function start(env: Record<string, string>): Promise<number> {
  const child = Bun.spawn([process.execPath, '-e', 'console.log(1); setInterval(() => {}, 1000)'], {
    env: { ...env, BUN_BE_BUN: '1' },
    stdout: 'pipe',
  });
  children.push(child);
  await child.stdout.getReader().read();
  return child.pid;
}

describe('findStragglers()', () => {
  test('finds links of the attachment whose runner has died', async () => {
    const link = { [RUNNER_VARIABLE]: '999999-1', CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0' };
    const pid = await start(link);
    await start({ ...link, CNI_CONTAINERID: 'c2' });
    await start({ ...link, [RUNNER_VARIABLE]: '999999-2' });
    expect(findStragglers(RECORD)).toEqual([pid]);
  });

  test('finds workers whose runner has died, whatever they serve', async () => {
    const pid = await start({ [WORKER_VARIABLE]: '999999-1' });
    await start({ [WORKER_VARIABLE]: '999999-2' });
    expect(findStragglers(RECORD)).toEqual([pid]);
  });
});
