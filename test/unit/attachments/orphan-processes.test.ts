import { afterEach, describe, expect, test } from 'bun:test';
import { endOrphanProcesses, findOrphanProcesses } from '../../../src/attachments/orphan-processes.ts';
import { RUNNER_VARIABLE, WORKER_VARIABLE } from '../../../src/attachments/runner.ts';

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
  test('finds plugins of the attachment whose runner has died', async () => {
    const link = { [RUNNER_VARIABLE]: '999999-1', CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0' };
    const pid = await start(link);
    await start({ ...link, CNI_CONTAINERID: 'c2' });
    await start({ ...link, [RUNNER_VARIABLE]: '999999-2' });
    expect(findOrphanProcesses(RECORD).map(one => one.pid)).toEqual([pid]);
  });

  test('finds workers whose runner has died, whatever they serve', async () => {
    const pid = await start({ [WORKER_VARIABLE]: '999999-1' });
    await start({ [WORKER_VARIABLE]: '999999-2' });
    expect(findOrphanProcesses(RECORD).map(one => one.pid)).toEqual([pid]);
  });
});

describe('endStragglers()', () => {
  const link = {
    [RUNNER_VARIABLE]: '999999-1',
    CNI_CONTAINERID: 'c1',
    CNI_IFNAME: 'eth0',
    PATH: process.env.PATH ?? '',
  };
  const waitFor = async (child: Bun.Subprocess<'ignore', 'pipe', 'inherit'>) => {
    children.push(child);
    await child.stdout.getReader().read();
    return child;
  };
  /** Leader of a group that ignores SIGTERM, with a child. */
  const startGroup = (env: Record<string, string>) =>
    waitFor(
      Bun.spawn(['sh', '-c', "trap '' TERM; sleep 60 & echo $!; wait; wait"], {
        env,
        stdout: 'pipe',
        detached: true,
      }),
    );

  test('ends a plugin past the deadline of its dead runner, with all its children', async () => {
    const runners = [{ ...DEAD, deadlineMs: 1 }];
    const stuck = await startGroup(link);
    const others = [
      await startGroup({ ...link, CNI_CONTAINERID: 'c2' }),
      await startGroup({ ...link, [RUNNER_VARIABLE]: '999999-2' }),
    ];
    await Bun.sleep(50);
    const found = findOrphanProcesses({ ...RECORD, runners });
    expect(found.find(({ pid }) => pid === stuck.pid)).toMatchObject({ isLeader: true, isOverdue: true });
    expect(found).toHaveLength(2);
    expect(await endOrphanProcesses(found, 100)).toBe(true);
    await stuck.exited;
    expect(findOrphanProcesses({ ...RECORD, runners })).toEqual([]);
    expect(others.map(({ exitCode, signalCode }) => [exitCode, signalCode])).toEqual(
      others.map(() => [null, null]),
    );
    for (const other of others) process.kill(-other.pid, 'SIGKILL');
  });

  test('waits for one that still has time, and for an id that another process reused', async () => {
    const stuck = await startGroup(link);
    const [found] = findOrphanProcesses({ ...RECORD, runners: [{ ...DEAD, deadlineMs: 60_000 }] });
    expect(found).toMatchObject({ isOverdue: false });
    const later = findOrphanProcesses(RECORD).map(one => ({ ...one, start: '1' }));
    expect(await endOrphanProcesses(later, 10)).toBe(true);
    expect(stuck.exitCode).toBeNull();
    process.kill(-stuck.pid, 'SIGKILL');
  });
});
