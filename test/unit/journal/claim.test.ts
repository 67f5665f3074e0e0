import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { claimRecord } from '../../../src/journal/claim.ts';
import { createRecord } from '../../../src/journal/create-record.ts';
import { recordFileOf } from '../../../src/journal/place.ts';
import { endRunner, startRunner } from '../../../src/journal/runner.ts';
import { readRecord } from '../../../src/journal/store.ts';
import { filesBelow, intentOf } from '../../helpers/journal.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-journal-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
/** A record whose runner has died. */
function abandoned(): void {
  const runner = startRunner();
  createRecord(dir, intentOf({ runner }))?.close();
  endRunner(runner);
}
function won(claim: ReturnType<typeof claimRecord>) {
  if (claim && 'drop' in claim) return claim;
  throw new Error(`no claim: ${JSON.stringify(claim)}`);
}

describe('claimRecord()', () => {
  test('is undefined without a record', () => expect(claimRecord(dir, ID)).toBeUndefined());

  test('names the process at work, and leaves its record unchanged', () => {
    const runner = startRunner();
    createRecord(dir, intentOf({ runner }))?.close();
    const before = fs.readFileSync(recordFileOf(dir, ID), 'utf8');
    expect(claimRecord(dir, ID)).toEqual({ holder: runner });
    expect(fs.readFileSync(recordFileOf(dir, ID), 'utf8')).toBe(before);
    endRunner(runner);
  });

  test('gives up if what it writes is not in the record afterwards', () => {
    abandoned();
    const write = () => claimRecord(dir, ID, undefined, 'DEL', Number.POSITIVE_INFINITY);
    expect(write).toThrow('what is written to its record is not in it afterwards');
    expect(fs.readFileSync(recordFileOf(dir, ID), 'utf8').split('\n').length).toBeLessThan(100);
  });

  test('gives the claim to one of many', () => {
    abandoned();
    const claims = Array.from({ length: 10 }, () => claimRecord(dir, ID));
    expect(claims.filter(claim => claim && 'drop' in claim)).toHaveLength(1);
    won(claims[0]).drop();
    expect(filesBelow(dir)).toEqual([]);
    expect(claimRecord(dir, ID)).toBeUndefined();
  });

  test('is released when the process presumed dead has just finished', () => {
    const runner = startRunner();
    const open = createRecord(dir, intentOf({ runner }));
    // The claim begins between these two.
    endRunner(runner);
    open?.append({ event: 'done', op: runner.op });
    const claim = claimRecord(dir, ID, record => {
      expect(record.phase).toBe('attached');
      return false;
    });
    expect(claim).toBeUndefined();
    open?.close();
    expect(readRecord(dir, ID)).toMatchObject({ phase: 'attached', runners: [] });
  });

  test('passes the claim on when it ends in failure', () => {
    abandoned();
    won(claimRecord(dir, ID)).fail([{ code: 11, msg: 'busy' }]);
    expect(readRecord(dir, ID)).toMatchObject({
      phase: 'failed',
      attempts: 1,
      lastErrors: [{ msg: 'busy' }],
    });
    won(claimRecord(dir, ID)).fail([{ code: 11, msg: 'busy again' }]);
    expect(readRecord(dir, ID)).toMatchObject({ attempts: 2, lastErrors: [{ msg: 'busy again' }] });
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual(['testnet/c1:eth0']);
  });

  test('leaves a settled record without a mark', () => {
    const runner = startRunner();
    const open = createRecord(dir, intentOf({ runner }));
    open?.append({ event: 'done', op: runner.op });
    open?.close();
    endRunner(runner);
    const claim = won(claimRecord(dir, ID, undefined, 'REPAIR'));
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual(['testnet/c1:eth0']);
    claim.leave();
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
  });

  test('does not let a record grow forever', () => {
    abandoned();
    for (let i = 1; i <= 100; i++) won(claimRecord(dir, ID)).fail([{ code: 11, msg: `attempt ${i}` }]);
    expect(readRecord(dir, ID)).toMatchObject({
      attempts: 100,
      lastErrors: [{ msg: 'attempt 100' }],
      args: [['K', 'v']],
    });
    expect(fs.readFileSync(recordFileOf(dir, ID), 'utf8').split('\n').length).toBeLessThan(80);
  });

  test('passes to another process only when the first has ended', async () => {
    const program = `
      const { claimRecord } = await import('${path.resolve('src/journal/claim.ts')}');
      const { createRecord } = await import('${path.resolve('src/journal/create-record.ts')}');
      const { intentOf } = await import('${path.resolve('test/helpers/journal.ts')}');
      createRecord('${dir}', intentOf())?.close();
      console.log('ready');
      setInterval(() => {}, 1000);`;
    const child = Bun.spawn([process.execPath, '-e', program], { stdout: 'pipe' });
    await child.stdout.getReader().read();
    expect(claimRecord(dir, ID)).toMatchObject({ holder: { pid: child.pid } });
    child.kill('SIGKILL');
    await child.exited;
    won(claimRecord(dir, ID)).drop();
  });
});
