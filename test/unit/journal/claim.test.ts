import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { claimRecord } from '../../../src/journal/claim.ts';
import type { LockPlace } from '../../../src/journal/lock.ts';
import { noteFileOf } from '../../../src/journal/place.ts';
import { endRunner, startRunner } from '../../../src/journal/runner.ts';
import { createNote, readRecord } from '../../../src/journal/store.ts';
import { filesBelow, intentOf, settle } from '../../helpers/journal.ts';

let dir: string;
let run: string;
let place: LockPlace;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-journal-'));
  run = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-run-'));
  place = { stateDir: dir, env: { ...process.env, CATENA_RUN_DIR: run } };
});
afterEach(() => {
  for (const one of [dir, run]) fs.rmSync(one, { recursive: true });
});

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
/** A record whose runner has died. */
function abandoned(): void {
  const runner = startRunner();
  createNote(dir, intentOf({ runner, cacheDir: run })).close();
  endRunner(runner);
}
function won(claim: ReturnType<typeof claimRecord>) {
  if (claim && 'drop' in claim) return claim;
  throw new Error(`no claim: ${JSON.stringify(claim)}`);
}

describe('claimRecord()', () => {
  test('is undefined without a record', () => expect(claimRecord(place, ID)).toBeUndefined());

  test('names the process at work, and leaves its record unchanged', () => {
    const runner = startRunner();
    createNote(dir, intentOf({ runner, cacheDir: run })).close();
    const before = fs.readFileSync(noteFileOf(dir, ID), 'utf8');
    expect(claimRecord(place, ID)).toEqual({ holder: runner });
    expect(fs.readFileSync(noteFileOf(dir, ID), 'utf8')).toBe(before);
    endRunner(runner);
  });

  test('gives the claim to one of many', () => {
    abandoned();
    const claims = Array.from({ length: 10 }, () => claimRecord(place, ID));
    expect(claims.filter(claim => claim && 'drop' in claim)).toHaveLength(1);
    won(claims[0]).drop();
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
    expect(claimRecord(place, ID)).toBeUndefined();
  });

  test('is released, with nothing written, if the record is not wanted', () => {
    abandoned();
    const before = fs.readFileSync(noteFileOf(dir, ID), 'utf8');
    expect(claimRecord(place, ID, () => false)).toBeUndefined();
    expect(fs.readFileSync(noteFileOf(dir, ID), 'utf8')).toBe(before);
    won(claimRecord(place, ID)).drop();
  });

  test('passes the claim on when it ends in failure', () => {
    abandoned();
    won(claimRecord(place, ID)).fail([{ code: 11, msg: 'busy' }]);
    expect(readRecord(dir, ID)).toMatchObject({
      phase: 'failed',
      attempts: 1,
      lastErrors: [{ msg: 'busy' }],
    });
    won(claimRecord(place, ID)).fail([{ code: 11, msg: 'busy again' }]);
    expect(readRecord(dir, ID)).toMatchObject({ attempts: 2, lastErrors: [{ msg: 'busy again' }] });
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual(['testnet/c1:eth0']);
  });

  test('notes a change of a settled attachment until that is undone', () => {
    settle(dir, intentOf({ cacheDir: path.join(run, 'cache'), result: { cniVersion: '1.1.0' } }));
    const claim = won(claimRecord(place, ID, undefined, 'repair'));
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
    claim.change({ to: { capabilityArgs: {}, source: '{}' }, plugins: [] });
    expect(readRecord(dir, ID)?.runners).toEqual([claim.lock.runner]);
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual(['testnet/c1:eth0']);
    claim.unchanged();
    claim.leave();
    expect(readRecord(dir, ID)).toMatchObject({ runners: [], phase: 'attached', isNoted: false });
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
  });

  test('commits a change in the entry, unless that is of a later ADD by then', () => {
    const cacheDir = path.join(run, 'cache');
    const to = { capabilityArgs: { mac: 'y' }, source: '{}', result: { cniVersion: '1.1.0' } };
    for (const isRemade of [false, true]) {
      settle(dir, intentOf({ cacheDir, result: { cniVersion: '1.1.0' } }));
      const claim = won(claimRecord(place, ID, undefined, 'repair'));
      claim.change({ to, plugins: [0] });
      if (isRemade) settle(dir, intentOf({ cacheDir, owner: 'later' }));
      claim.changed(to);
      claim.leave();
      const found = readRecord(dir, ID);
      expect([found?.owner, found?.source]).toEqual(isRemade ? ['later', intentOf().source] : ['test', '{}']);
      expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
    }
  });

  test('does not let a record grow forever', () => {
    abandoned();
    for (let i = 1; i <= 100; i++) won(claimRecord(place, ID)).fail([{ code: 11, msg: `attempt ${i}` }]);
    expect(readRecord(dir, ID)).toMatchObject({
      attempts: 100,
      lastErrors: [{ msg: 'attempt 100' }],
      args: [['K', 'v']],
    });
    expect(fs.readFileSync(noteFileOf(dir, ID), 'utf8').split('\n').length).toBeLessThan(80);
  });

  test('passes to another process only when the first has ended', async () => {
    const program = `
      const { claimRecord } = await import('${path.resolve('src/journal/claim.ts')}');
      const { createNote } = await import('${path.resolve('src/journal/store.ts')}');
      const { intentOf } = await import('${path.resolve('test/helpers/journal.ts')}');
      createNote('${dir}', intentOf()).close();
      console.log('ready');
      setInterval(() => {}, 1000);`;
    const child = Bun.spawn([process.execPath, '-e', program], { stdout: 'pipe' });
    await child.stdout.getReader().read();
    expect(claimRecord(place, ID)).toMatchObject({ holder: { pid: child.pid } });
    child.kill('SIGKILL');
    await child.exited;
    won(claimRecord(place, ID)).drop();
  });
});
