// Has an attachment one owner at a time, even if owners die, and is what the dead left known until it is gone?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  buryOwner,
  findHolder,
  isBeingRemoved,
  type Lock,
  type LockPlace,
  type Purpose,
  takeLock,
} from '../../../src/attachments/lock.ts';
import { sweepDeadLocks, sweepLocks } from '../../../src/attachments/sweep-locks.ts';
import { untilStarted } from '../../helpers/until.ts';

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

const DEAD = '999999-1-1';

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
    enter(DEAD);
    const orphan = Bun.spawn(['sleep', '100'], {
      env: { PATH: process.env.PATH ?? '', CATENA_RUNNER: '999999-1' },
    });
    await untilStarted(orphan, 'CATENA_RUNNER');
    const first = take();
    expect(first.dead).toMatchObject([{ pid: 999_999, start: '1', op: DEAD, deadlineMs: 1000 }]);
    first.release();
    expect(left()).toEqual([`${DEAD}@${first.runner.op}`]);
    const second = take();
    expect(second.dead).toMatchObject([{ op: DEAD }]);
    expect(left()).toEqual([`${DEAD}@${second.runner.op}`, second.runner.op].sort());
    orphan.kill();
    await orphan.exited;
    second.release();
    expect(left()).toEqual([]);
    expect(take().dead).toEqual([]);
  });

  test.each([
    ['of a process with the same number that started later', `${process.pid}-1-1`, {}, 1],
    ['of this process that it does not know', undefined, {}, 1],
    ['of the same number before a reboot', DEAD, { boot: 'other' }, 0],
    ['of a process that cannot be seen, long ago', DEAD, { pidns: 'pid:[1]', since: 0 }, 1],
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
    enter(DEAD, { pidns: 'pid:[1]' });
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
    enter(DEAD, { purpose: 'remove' });
    enter('999999-1-2', { purpose: 'remove', pidns: 'pid:[1]' });
    expect(isBeingRemoved(place.env, ID)).toBe(false);
  });
});

test('what a process left that died before it had the lock is swept, and that of a living one stays', () => {
  const { pid, start } = take().runner;
  for (const name of [`.${DEAD}`, `.${pid}-${start}-5`]) fs.mkdirSync(path.join(run, 'locks', name));
  fs.symlinkSync('x', path.join(run, 'locks', `.${DEAD}`, DEAD));
  sweepLocks(place.env);
  expect(fs.readdirSync(path.join(run, 'locks')).sort()).toEqual([`.${pid}-${start}-5`, 'own']);
});

test('the lock of a dead process goes once nothing of that runs, and that of a living one stays', async () => {
  enter(DEAD);
  const orphan = Bun.spawn(['sleep', '100'], {
    env: { PATH: process.env.PATH ?? '', CATENA_RUNNER: '999999-1' },
  });
  await untilStarted(orphan, 'CATENA_RUNNER');
  sweepDeadLocks(place);
  expect(left()).toEqual([DEAD]);
  orphan.kill();
  await orphan.exited;
  sweepDeadLocks(place);
  expect(left()).toEqual([]);
  const lock = take();
  sweepDeadLocks(place);
  expect(left()).toEqual([lock.runner.op]);
});
