import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { PluginRequest } from '../../../src/daemon/protocol.ts';
import { Upkeep, type UpkeepParts } from '../../../src/daemon/upkeep.ts';
import { becomeKeeper, putUpkeep, removeUpkeep } from '../../../src/node/upkeep/note.ts';
import { until } from '../../helpers/until.ts';

let dir = '';
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-upkeep-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

/** A note of a container; due long after this test unless given. */
function put(containerId: string, more: object = {}): void {
  const call = { env: { CNI_NETNS: `/run/netns/${containerId}` }, stdin: '{"name":"lan"}' };
  const note = {
    network: 'lan',
    containerId,
    ifname: 'eth0',
    id: containerId,
    boot: 'b1',
    dueAt: 1e12,
    call,
    state: 1,
  };
  putUpkeep(dir, 'keeps', { ...note, ...more });
}

function upkeep(answer: { exitCode: number; stdout: string }) {
  const calls: PluginRequest[] = [];
  const logged: string[] = [];
  const parts: UpkeepParts = {
    stateDir: dir,
    boot: 'b1',
    env: { CATENA_RUN_DIR: '/run/x' },
    log: (level, message, fields) => void logged.push(`${level}: ${message}: ${fields?.problem}`),
    async call(request) {
      calls.push(request);
      return { stderr: '', ...answer };
    },
  };
  return { calls, logged, start: () => new Upkeep(parts) };
}

test('every note of this boot is called for when a daemon starts, with the environment of its ADD', async () => {
  put('web');
  put('old', { boot: 'b0' });
  put('done', { dueAt: undefined });
  const { calls, logged, start } = upkeep({ exitCode: 0, stdout: '' });
  const running = start();
  await until(() => calls.length > 0);
  expect(running.kept).toBe(1);
  await running.stop();
  expect(calls).toEqual([
    {
      plugin: 'keeps',
      env: {
        CATENA_RUN_DIR: '/run/x',
        CNI_NETNS: '/run/netns/web',
        CNI_COMMAND: 'CHECK',
        CATENA_UPKEEP: 'restart',
        CATENA_SERVED: '1',
      },
      stdin: '{"name":"lan"}',
      cwd: '/',
    },
  ]);
  expect(logged).toEqual([]);
});

test('a note that outlives its boot is called for at once after the next, whatever time it names', async () => {
  put('blocks', { boot: 'b0', outlivesBoot: true });
  const { calls, start } = upkeep({ exitCode: 0, stdout: '' });
  const running = start();
  await until(() => calls.length > 0);
  await running.stop();
  expect(calls.map(({ env }) => env.CATENA_UPKEEP)).toEqual(['restart']);
});

test('a failure is reported, and a namespace that is gone without alarm', async () => {
  put('web');
  const failing = upkeep({ exitCode: 1, stdout: '{"code": 999, "msg": "no"}' });
  const running = failing.start();
  await until(() => failing.logged.length > 0);
  await running.stop();
  expect(failing.logged).toEqual(['warn: cannot keep an attachment: no']);
  const gone = upkeep({ exitCode: 1, stdout: '{"code": 8, "msg": "no namespace"}' });
  const second = gone.start();
  await until(() => gone.logged.length > 0);
  await second.stop();
  expect(gone.logged[0]).toStartWith('info: ');
});

test('nothing is called for while another process keeps', async () => {
  put('web');
  const release = becomeKeeper(dir);
  const { calls, start } = upkeep({ exitCode: 0, stdout: '' });
  const running = start();
  await Bun.sleep(50);
  await running.stop();
  expect(calls).toEqual([]);
  release?.();
});

test('a note of an ADD under this daemon is called for at once, but not as after a restart', async () => {
  put('web');
  const { calls, start } = upkeep({ exitCode: 0, stdout: '' });
  const running = start();
  await until(() => calls.length > 0);
  put('db');
  await until(() => calls.length > 1);
  await running.stop();
  expect(calls.map(({ env }) => env.CATENA_UPKEEP)).toEqual(['restart', 'due']);
});

test('a note that is gone is forgotten, and so is that a call for it failed', async () => {
  put('web');
  const { calls, logged, start } = upkeep({ exitCode: 1, stdout: '{"code": 8, "msg": "no namespace"}' });
  const running = start();
  await until(() => logged.length === 1);
  removeUpkeep(dir, 'keeps', { network: 'lan', containerId: 'web', ifname: 'eth0' });
  put('other');
  await until(() => logged.length === 2);
  put('web');
  await until(() => logged.length === 3);
  await running.stop();
  expect(calls.map(({ env }) => env.CNI_NETNS)).toEqual(
    ['web', 'other', 'web'].map(name => `/run/netns/${name}`),
  );
});

/** Calls for which `hangs` says so do not end before `end()`. */
function hanging(hangs: (call: PluginRequest) => boolean) {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const running = new Upkeep({
    stateDir: dir,
    boot: 'b1',
    env: {},
    log: () => undefined,
    async call(call) {
      if (hangs(call)) await ended;
      return { stderr: '', exitCode: 0, stdout: '' };
    },
  });
  return { running, end };
}

test('a note that waits behind calls that hang is still called for as after a restart', async () => {
  for (let i = 0; i < 6; i++) put(`web${i}`);
  const kinds: (string | undefined)[] = [];
  const { running, end } = hanging(({ env }) => {
    kinds.push(env.CATENA_UPKEEP);
    return true;
  });
  await until(() => kinds.length === 4);
  // A call counts as one that hangs after a second; then the daemon looks again, every three seconds.
  await Bun.sleep(1_500);
  end();
  await until(() => kinds.length === 6);
  await running.stop();
  expect(kinds).toEqual(Array(6).fill('restart'));
});

test('a short call that is urgent does not wait for those of its network that hang', async () => {
  for (let i = 0; i < 6; i++) put(`hangs${i}`);
  const calls: string[] = [];
  const { running, end } = hanging(({ env }) => {
    const name = env.CNI_NETNS?.split('/').at(-1) ?? '';
    calls.push(name);
    return name.startsWith('hangs');
  });
  await until(() => calls.length === 4);
  put('waits', { dueAt: 0 });
  put('ended', { dueAt: 0, urgentAt: 0 });
  await until(() => calls.includes('ended'), { withinMs: 20_000 });
  expect(calls).not.toContain('waits');
  end();
  await running.stop();
});
