// Has an attachment one owner at a time, even if owners die, and is what the dead left known until it is gone?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  awaitOrphans,
  buryOwner,
  endOrphanAdds,
  endOrphanProcesses,
  endRunner,
  findHolder,
  findOrphanProcesses,
  isAlive,
  isBeingRemoved,
  type Lock,
  type LockPlace,
  type Purpose,
  startRunner,
  sweepDeadLocks,
  sweepLocks,
  takeLock,
} from '../../../src/attachments/lock.ts';
import { RUNNER_VARIABLE, WORKER_VARIABLE } from '../../../src/files/process-stat.ts';
import { untilStarted } from '../../helpers/until.ts';

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

let run: string;
let place: LockPlace;
beforeEach(() => {
  run = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-lock-'));
  place = { stateDir: '/var/lib/catena', env: { CATENA_RUN_DIR: run, CATENA_BOOT_ID: 'this' } };
});
afterEach(() => fs.rmSync(run, { recursive: true }));

const ID = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
const PIDNS = fs.readlinkSync('/proc/self/ns/pid');
const dirOf = (scope = 'own') => path.join(run, 'locks', scope, 'podnet/c1:eth0');
const left = () => (fs.existsSync(dirOf()) ? fs.readdirSync(dirOf()).sort() : []);

function take(purpose: Purpose = 'del', where = place): Lock {
  const lock = takeLock(where, ID, purpose, 1000);
  if ('holder' in lock) throw new Error(`process ${lock.holder.pid} has it`);
  return lock;
}

/** An entry as a process leaves it. */
function enter(
  name: string,
  { purpose = 'add', pidns = PIDNS, boot = 'this', since = Date.now() } = {},
): void {
  fs.mkdirSync(dirOf(), { recursive: true });
  fs.symlinkSync(`${purpose} ${pidns} ${boot} 1000 ${since}`, path.join(dirOf(), name));
}

/** Of a process that never was, and of this test alone: others run on the same machine. */
const DEAD_START = `${process.pid}0${Date.now() % 100_000}`;
const DEAD_PROCESS = `999999-${DEAD_START}`;
const DEAD_OP = `${DEAD_PROCESS}-1`;

describe('takeLock()', () => {
  test('gives an attachment to one, until that releases it, and nothing stays', () => {
    const lock = take();
    expect(takeLock(place, ID, 'add')).toEqual({ holder: { ...lock.runner, time: lock.runner.time } });
    expect(findHolder(place, ID)).toMatchObject({ op: lock.runner.op });
    expect(takeLock(place, { ...ID, ifname: 'eth1' }, 'add')).toHaveProperty('release');
    lock.release();
    lock.release();
    expect([findHolder(place, ID), left()]).toEqual([undefined, []]);
    take().release();
  });

  test('of a delegate and of its caller, which is named alike, are two', () => {
    const own = take();
    const [pods, delegates] = ['pods', 'delegates'].map(name =>
      take('add', { ...place, stateDir: `/var/lib/catena/${name}/` }),
    );
    expect(findHolder(place, ID)?.op).toBe(own.runner.op);
    for (const lock of [own, pods, delegates]) lock?.release();
  });

  test('takes that of a dead process, and knows it until its orphans are gone, by however many it was taken', async () => {
    enter(DEAD_OP);
    const orphan = Bun.spawn(['sleep', '100'], {
      env: { PATH: process.env.PATH ?? '', CATENA_RUNNER: DEAD_PROCESS },
    });
    await untilStarted(orphan, 'CATENA_RUNNER');
    const first = take();
    expect(first.dead).toMatchObject([{ pid: 999_999, start: DEAD_START, op: DEAD_OP, deadlineMs: 1000 }]);
    first.release();
    expect(left()).toEqual([`${DEAD_OP}@${first.runner.op}`]);
    const second = take();
    expect(second.dead).toMatchObject([{ op: DEAD_OP }]);
    expect(left()).toEqual([`${DEAD_OP}@${second.runner.op}`, second.runner.op].sort());
    orphan.kill();
    await orphan.exited;
    second.release();
    expect(left()).toEqual([]);
    expect(take().dead).toEqual([]);
  });

  test('is given back also if orphans cannot be looked for, for want of descriptors, and the dead stay known', async () => {
    enter(DEAD_OP);
    const script = `
      import { closeSync, openSync } from 'node:fs';
      import { takeLock } from '${path.resolve('src/attachments/lock.ts')}';
      const [place, id] = JSON.parse(process.argv[2]);
      const lock = takeLock(place, id, 'del', 1000);
      const taken = [];
      try {
        for (;;) taken.push(openSync('/dev/null', 'r'));
      } catch {}
      lock.release();
      for (const fd of taken) closeSync(fd);
      const again = takeLock(place, id, 'del', 1000);
      console.log(again.dead.map(({ op }) => op).join());
      again.release();
    `;
    const file = path.join(run, 'full.ts');
    fs.writeFileSync(file, script);
    const full = Bun.spawn(
      ['sh', '-c', 'ulimit -n 200; exec "$0" "$@"', process.execPath, file, JSON.stringify([place, ID])],
      { env: { PATH: process.env.PATH ?? '', BUN_BE_BUN: '1' }, stdout: 'pipe', timeout: 60_000 },
    );
    expect(await new Response(full.stdout).text()).toBe(`${DEAD_OP}\n`);
    expect(left()).toEqual([]);
  });

  test.each([
    ['of a process with the same number that started later', `${process.pid}-1-1`, {}, 1],
    ['of this process that it does not know', undefined, {}, 1],
    ['of the same number before a reboot', DEAD_OP, { boot: 'other' }, 0],
    ['of a process that cannot be seen, long ago', DEAD_OP, { pidns: 'pid:[1]', since: 0 }, 1],
    ['that no operation of ours can have', 'strange', {}, 0],
  ])('takes one %s', (_, name, more, dead) => {
    const own = take().runner;
    enter(name ?? `${own.pid}-${own.start}-999999`, more);
    fs.rmSync(path.join(dirOf(), own.op));
    const lock = take();
    expect(lock.dead).toHaveLength(dead);
    lock.forgetDead();
    lock.release();
    expect(left()).toEqual([]);
  });

  test('waits for a process that cannot be seen', () => {
    enter(DEAD_OP, { pidns: 'pid:[1]' });
    expect(takeLock(place, ID, 'del')).toMatchObject({ holder: { pid: 999_999 } });
  });

  test('takes that of a process that was killed and that the freezer keeps', () => {
    enter(`1-${startOf(1)}-1`);
    const { holder } = takeLock(place, ID, 'del') as Exclude<ReturnType<typeof takeLock>, Lock>;
    expect(holder.pid).toBe(1);
    buryOwner(place, ID, holder);
    expect(take().dead).toMatchObject([{ pid: 1 }]);
  });

  test('never removes what is not its own if the run directory was emptied', () => {
    const first = take();
    fs.rmSync(path.join(run, 'locks'), { recursive: true });
    const second = take();
    first.release();
    expect(left()).toEqual([second.runner.op]);
    second.release();
  });

  test('says what is wrong with the run directory', () => {
    fs.writeFileSync(path.join(run, 'locks'), '');
    expect(() => take()).toThrow(`Cannot lock "${dirOf()}": `);
  });

  test('has one owner at a time among many processes that are killed at any moment', async () => {
    const program = `
      import fs from 'node:fs';
      import { takeLock } from '${path.resolve('src/attachments/lock.ts')}';
      const place = { stateDir: '/s', env: { CATENA_RUN_DIR: '${run}', CATENA_BOOT_ID: 'this' } };
      const inside = '${run}/inside';
      for (;;) {
        const lock = takeLock(place, ${JSON.stringify(ID)}, 'del');
        if ('holder' in lock) continue;
        for (const name of fs.existsSync(inside) ? fs.readdirSync(inside) : [])
          if (fs.existsSync('/proc/' + name) && !/ [ZX] /.test(fs.readFileSync('/proc/' + name + '/stat', 'latin1')))
            fs.writeFileSync('${run}/double', name);
        fs.mkdirSync(inside + '/' + process.pid, { recursive: true });
        fs.appendFileSync('${run}/turns', '.');
        fs.rmdirSync(inside + '/' + process.pid);
        lock.release();
      }`;
    const file = path.join(run, 'program.ts');
    fs.writeFileSync(file, program);
    const start = () => Bun.spawn([process.execPath, file], { stdout: 'ignore', stderr: 'inherit' });
    const children = Array.from({ length: 4 }, start);
    const turns = () =>
      fs.existsSync(path.join(run, 'turns')) ? fs.statSync(path.join(run, 'turns')).size : 0;
    for (let kill = 0; kill < 16; kill++) {
      const before = turns();
      while (turns() < before + 5) await Bun.sleep(1);
      const at = kill % children.length;
      children[at]?.kill('SIGKILL');
      await children[at]?.exited;
      children[at] = start();
    }
    for (const child of children) child.kill('SIGKILL');
    await Promise.all(children.map(({ exited }) => exited));
    expect(fs.existsSync(path.join(run, 'double'))).toBe(false);
    expect(turns()).toBeGreaterThan(80);
    take().release();
  });
});

function startOf(pid: number): string {
  const text = fs.readFileSync(`/proc/${pid}/stat`, 'latin1');
  return text.slice(text.lastIndexOf(')') + 2).split(' ')[19] ?? '';
}

describe('isBeingRemoved()', () => {
  test('counts only while a living process deletes unasked, and the lock stays', () => {
    const lock = take();
    expect(isBeingRemoved(place.env, ID)).toBe(false);
    lock.become('remove');
    expect(isBeingRemoved(place.env, ID)).toBe(true);
    expect(isBeingRemoved(place.env, { ...ID, ifname: 'eth1' })).toBe(false);
    expect(takeLock(place, ID, 'add')).toHaveProperty('holder');
    lock.become('add');
    expect(isBeingRemoved(place.env, ID)).toBe(false);
    lock.release();
    expect(fs.readdirSync(path.join(run, 'locks')).filter(name => name.startsWith('.'))).toEqual([]);
  });

  test('counts for a delegate, not for a pod', () => {
    const [delegates, pods] = ['delegates', 'pods'].map(name => ({ ...place, stateDir: `/s/${name}` }));
    const pod = take('remove', pods);
    expect(isBeingRemoved(place.env, ID)).toBe(false);
    const delegate = take('remove', delegates);
    expect(isBeingRemoved(place.env, ID)).toBe(true);
    for (const lock of [pod, delegate]) lock.release();
  });

  test('does not count for a process that is dead or cannot be seen', () => {
    enter(DEAD_OP, { purpose: 'remove' });
    enter(`${DEAD_PROCESS}-2`, { purpose: 'remove', pidns: 'pid:[1]' });
    expect(isBeingRemoved(place.env, ID)).toBe(false);
  });
});

test('what a process left that died before it had the lock is swept, and that of a living one stays', () => {
  const { pid, start } = take().runner;
  for (const name of [`.${DEAD_OP}`, `.${pid}-${start}-5`]) fs.mkdirSync(path.join(run, 'locks', name));
  fs.symlinkSync('x', path.join(run, 'locks', `.${DEAD_OP}`, DEAD_OP));
  sweepLocks(place.env);
  expect(fs.readdirSync(path.join(run, 'locks')).sort()).toEqual([`.${pid}-${start}-5`, 'own']);
});

test('the lock of a dead process goes once nothing of that runs, and that of a living one stays', async () => {
  enter(DEAD_OP);
  const orphan = Bun.spawn(['sleep', '100'], {
    env: { PATH: process.env.PATH ?? '', CATENA_RUNNER: DEAD_PROCESS },
  });
  await untilStarted(orphan, 'CATENA_RUNNER');
  sweepDeadLocks(place);
  expect(left()).toEqual([DEAD_OP]);
  orphan.kill();
  await orphan.exited;
  sweepDeadLocks(place);
  expect(left()).toEqual([]);
  const lock = take();
  sweepDeadLocks(place);
  expect(left()).toEqual([lock.runner.op]);
});

const DEAD = { pid: 999_999, start: DEAD_START, pidns: '', op: DEAD_OP, time: '' };
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
    const link = { [RUNNER_VARIABLE]: DEAD_PROCESS, CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0' };
    const pid = await start(link);
    await start({ ...link, CNI_CONTAINERID: 'c2' });
    await start({ ...link, [RUNNER_VARIABLE]: '999999-2' });
    expect(findOrphanProcesses(RECORD).map(one => one.pid)).toEqual([pid]);
  });

  test('is not waited for longer than an operation gives a plugin of its own', async () => {
    const pid = await start({ [RUNNER_VARIABLE]: DEAD_PROCESS, CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0' });
    const waiting = awaitOrphans(RECORD, undefined, 0);
    process.kill(pid, 'SIGKILL');
    await expect(waiting).rejects.toThrow(
      `process ${pid}, a plugin whose runner died, is still working on it`,
    );
  });

  test('finds workers whose runner has died, whatever they serve', async () => {
    const pid = await start({ [WORKER_VARIABLE]: DEAD_PROCESS });
    await start({ [WORKER_VARIABLE]: '999999-2' });
    expect(findOrphanProcesses(RECORD).map(one => one.pid)).toEqual([pid]);
  });
});

describe('endStragglers()', () => {
  const link = {
    [RUNNER_VARIABLE]: DEAD_PROCESS,
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

  test('spares a group whose leader lives, also if it has no descriptor left to look at it', async () => {
    const stuck = await startGroup(link);
    const script = `
      import { openSync } from 'node:fs';
      import { endOrphanProcesses } from '${path.resolve('src/attachments/lock.ts')}';
      const orphan = { pid: ${stuck.pid}, start: '1', isLeader: true, isOverdue: true };
      await endOrphanProcesses([{ ...orphan, isLeader: false }], 1);
      try {
        for (;;) openSync('/dev/null', 'r');
      } catch (error) {
        console.log(error.code);
      }
      console.log(await endOrphanProcesses([orphan], 10));
    `;
    const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'cat-lock-')), 'full.ts');
    fs.writeFileSync(file, script);
    const full = Bun.spawn(['sh', '-c', 'ulimit -n 200; exec "$0" "$1"', process.execPath, file], {
      env: { PATH: process.env.PATH ?? '', BUN_BE_BUN: '1' },
      stdout: 'pipe',
    });
    expect(await new Response(full.stdout).text()).toBe('EMFILE\nfalse\n');
    fs.rmSync(path.dirname(file), { recursive: true });
    expect([stuck.exitCode, stuck.signalCode]).toEqual([null, null]);
    process.kill(-stuck.pid, 'SIGKILL');
  });
});

test('endOrphanAdds() ends only plugins of the ADD whose runner has died', async () => {
  const id = `orphan-${process.pid}`;
  const start = (env: Record<string, string>) =>
    Bun.spawn(['sleep', '60'], { env: { ...env, PATH: process.env.PATH ?? '' }, detached: true });
  const add = {
    [RUNNER_VARIABLE]: DEAD_PROCESS,
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
    await endOrphanAdds({ containerId: id, runners: [DEAD] }, ['eth0', 'net1']);
    await Promise.all(orphans.map(child => child.exited));
    expect(orphans.map(child => child.signalCode)).toEqual(['SIGKILL', 'SIGKILL']);
    expect(others.map(child => child.exitCode ?? child.signalCode)).toEqual(others.map(() => null));
  } finally {
    for (const child of [...orphans, ...others]) child.kill('SIGKILL');
  }
});
