// Do a daemon and its clients agree on which of them makes a call, whichever is first?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { BegunCalls, daemonOf, giveUp, judgeSilence, SLOTS } from '../../../src/daemon/calls.ts';
import { callsFileOf } from '../../../src/daemon/protocol.ts';
import { readProcessStat, thisProcess, wantedCpuMs } from '../../../src/files/process-stat.ts';
import { until } from '../../helpers/until.ts';

const STAT = { ino: 7, mtimeMs: 12.5 };
let dir: string;
let file: string;
let calls: BegunCalls;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-begun-'));
  file = callsFileOf(`${dir}/catena.sock`, STAT);
  calls = new BegunCalls(`${dir}/catena.sock`, STAT);
});
afterEach(() => {
  calls.close();
  fs.rmSync(dir, { recursive: true });
});

test('a call that the daemon has begun is reported as begun, and by which process, until it ends', () => {
  const key = crypto.randomUUID();
  expect(calls.begin(key)).toBe(true);
  expect(giveUp(file, key)).toBe(true);
  expect(daemonOf(file)).toEqual(thisProcess());
  calls.end(key);
  expect(giveUp(file, key)).toBe(false);
});

test('a call that its client has given up is not begun, and others are unaffected', () => {
  const [first, second] = [crypto.randomUUID(), crypto.randomUUID()];
  expect(giveUp(file, first)).toBe(false);
  expect(giveUp(file, second)).toBe(false);
  expect(calls.begin(crypto.randomUUID())).toBe(true);
  expect(calls.begin(second)).toBe(false);
  expect(calls.begin(first)).toBe(false);
  expect(giveUp(file, first)).toBe(false);
});

test('while it cannot be read what clients have given up, no call begins', () => {
  const key = crypto.randomUUID();
  const { size } = fs.statSync(file);
  // Longer than memory.
  fs.truncateSync(file, 2 ** 42);
  expect(calls.begin(key)).toBe(false);
  fs.truncateSync(file, size);
  expect(giveUp(file, key)).toBe(false);
});

test('with more calls than there are slots, any call counts as begun', () => {
  const keys = Array.from({ length: SLOTS + 1 }, () => crypto.randomUUID());
  for (const key of keys) expect(calls.begin(key)).toBe(true);
  expect(giveUp(file, crypto.randomUUID())).toBe(true);
  for (const key of keys) calls.end(key);
  // Slots are used again: this one is no call too many.
  expect(calls.begin(crypto.randomUUID())).toBe(true);
  expect(giveUp(file, crypto.randomUUID())).toBe(false);
});

test('a client creates no file', () => {
  expect(giveUp(`${file}-other`, 'key')).toBeUndefined();
  expect(fs.existsSync(`${file}-other`)).toBe(false);
});

test('files of dead daemons are removed, and that of a live one is kept', () => {
  const abandoned = `${dir}/catena.sock.calls.1-1`;
  fs.writeFileSync(abandoned, '');
  const next = new BegunCalls(`${dir}/catena.sock`, { ino: 8, mtimeMs: 13 });
  expect(fs.existsSync(abandoned)).toBe(false);
  expect(fs.existsSync(file)).toBe(true);
  next.close();
});

test.each([
  ['uses a processor now and then', 'setInterval(() => {}, 20)', 12_000, 'wait'],
  ['does so, and is silent for longer than a node is busy', 'setInterval(() => {}, 20)', 31_000, 'lost'],
  ['sleeps', 'Bun.sleepSync(1e9)', 12_000, 'lost'],
])('a daemon that is silent and %s', async (_, script, silentMs, verdict) => {
  const daemon = Bun.spawn([process.execPath, '-e', `console.log(); ${script}`], { stdout: 'pipe' });
  try {
    await daemon.stdout.getReader().read();
    // The engine goes on for a moment after its first words.
    let used = 0;
    const rests = async () => {
      const before = used;
      used = wantedCpuMs(daemon.pid);
      await Bun.sleep(100);
      return before === used && readProcessStat(daemon.pid)?.state !== 'R';
    };
    if (script.includes('sleep')) await until(rests);
    const start = readProcessStat(daemon.pid)?.start;
    const bytes = fs.readFileSync(file).fill(0, 0, 255);
    bytes.write(JSON.stringify({ ...thisProcess(), pid: daemon.pid, start }));
    const key = crypto.randomUUID();
    bytes.write(key, 256);
    const given = `${dir}/given`;
    fs.writeFileSync(given, bytes);
    expect(await judgeSilence(given, key, silentMs)).toBe(verdict as 'wait');
    if (verdict === 'lost') await daemon.exited;
    expect(daemon.signalCode).toBe(verdict === 'lost' ? 'SIGKILL' : null);
  } finally {
    daemon.kill('SIGKILL');
    await daemon.exited;
  }
});
