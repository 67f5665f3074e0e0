// Is an attachment of another runtime mended and changed as it is, although that runtime knows no locks?

import { afterEach, beforeEach, describe, expect, spyOn, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Entry, removeEntry, writeEntry } from '../../../../src/attachments/entries.ts';
import { forgetGeneration, noteGeneration } from '../../../../src/attachments/generation.ts';
import { endRunner, isBeingRemoved, takeLock } from '../../../../src/attachments/lock.ts';
import { begunAdd, ofEntry } from '../../../../src/attachments/notes.ts';
import { listAttachments } from '../../../../src/attachments/store.ts';
import { changeNetwork } from '../../../../src/chain/change.ts';
import { parseFrozen } from '../../../../src/chain/config/conflist.ts';
import { collectGarbage } from '../../../../src/chain/records/collect-garbage.ts';
import { isAbandoned, undoIfDeleted } from '../../../../src/chain/records/foreign.ts';
import { recover } from '../../../../src/chain/records/recover.ts';
import { repair, repairOne } from '../../../../src/chain/records/repair.ts';
import type { ChainRuntime } from '../../../../src/chain/run/runtime.ts';
import type { Exec, ExecCall } from '../../../../src/chain/run/segment.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import { bootId } from '../../../../src/files/process-stat.ts';
import { handOverOne, listAttached } from '../../../../src/node/handover/hand-over.ts';
import { standingOf } from '../../../../src/watch/attachments.ts';
import { collectGone } from '../../../../src/watch/collect-gone.ts';
import { examine } from '../../../../src/watch/examine.ts';
import { intentOf, recordsIn } from '../../../helpers/journal.ts';

const ID = { network: 'net', containerId: 'c1', ifname: 'eth0' };
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };
const LIST = { cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'one' }, { type: 'two' }] };

let dir: string;
let calls: string[];
/** What happens while `two` puts it back. */
let during: () => unknown;
let runtime: ChainRuntime & { cacheDir: string; stateDir: string };
let cached: Entry;

beforeEach(() => {
  dir = fs.mkdtempSync(path.join(tmpdir(), 'cat-cached-'));
  [calls, during] = [[], () => {}];
  runtime = {
    pluginDirs: [],
    cacheDir: path.join(dir, 'cache'),
    stateDir: path.join(dir, 'state'),
    env: { ...process.env, CATENA_RUN_DIR: path.join(dir, 'run') },
    find: type => `/somewhere/${type}`,
    isOwn: () => true,
    exec: ({ path: file, env }) => {
      const mode = env.CATENA_CHANGE ?? env.CATENA_HANDOVER;
      calls.push(`${mode ?? env.CNI_COMMAND} ${path.basename(file)}`);
      if (mode === 'do') during();
      if (mode !== undefined)
        return { stdout: JSON.stringify({ changed: RESULT, options: ['rate'], handedOver: ['a rule'] }) };
      const isRepair = env.CATENA_REPAIR !== undefined;
      if (env.CNI_COMMAND !== 'CHECK' || !file.endsWith('two')) return { stdout: '' };
      if (isRepair) during();
      return isRepair ? { stdout: '' } : { exitCode: 1, stdout: '{"code":100,"msg":"a rule is gone"}' };
    },
  };
  const inputs = { netns: '/proc/self/ns/net', args: [], capabilityArgs: {}, source: JSON.stringify(LIST) };
  cached = { ...ID, ...inputs, result: RESULT };
  writeEntry(runtime.cacheDir, cached);
  noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const CALLS = ['CHECK one', 'CHECK two', 'CHECK two'];
const DELETED = { ...ID, state: 'skipped', why: 'its runtime has just deleted it' };
const repaired = async (more: Partial<ChainRuntime> = {}) =>
  (await repair({}, { ...runtime, ...more })).attachments;
const theirs = () => ofEntry(cached, runtime.cacheDir, []);
/** What is left of it: cached results, and records. */
const left = () => [fs.readdirSync(path.join(runtime.cacheDir, 'results')), recordsIn(runtime.stateDir)];

test('an attachment that exists is repaired and kept, without a record', async () => {
  expect(await repaired()).toMatchObject([{ ...ID, plugins: [{ state: 'sound' }, { state: 'mended' }] }]);
  expect(calls).toEqual(CALLS);
  expect(left()).toEqual([['net-c1-eth0'], []]);
});

test('nothing is put back where its namespace does not have its interface', async () => {
  const witness = { findLife: () => Promise.resolve(undefined), hasInterface: () => false };
  const openWitness = () => Promise.resolve(witness);
  expect(await repaired({ openWitness })).toMatchObject([
    { plugins: [{ state: 'sound' }, { state: 'broken' }] },
  ]);
  expect(calls).toEqual(CALLS.slice(0, 2));
  const changing = changeNetwork(ID, { options: { two: { rate: 5 } } }, { ...runtime, openWitness });
  await expect(changing).rejects.toThrow('does not have the interface of its ADD');
  expect(calls).toEqual(CALLS.slice(0, 2));
  expect(left()).toEqual([['net-c1-eth0'], []]);
});

test.each([
  ['a change of it', { phase: 'attached' }, true],
  ['a DEL of it that has failed, and is tried again', { phase: 'failed' }, false],
  ['what another network namespace has to do', { phase: 'attached', hostCookie: '1' }, false],
] as const)('when its runtime has deleted it, its note of %s (%j) goes: %p', (_, more, goes) => {
  const change = { to: { capabilityArgs: {}, source: '{}' }, plugins: [], op: 'set' };
  const runner = { pid: 2 ** 22 + 1, start: '1', pidns: '', op: 'dead', time: '' };
  const intent = intentOf({ ...ID, boot: bootId(), foreign: true, generation: 'former', runner });
  const record = { ...begunAdd(intent, 'note'), added: true, change, runners: [], ...more };
  expect(isAbandoned(record, runtime)).toBe(goes);
});

test('nothing is put back while a process works on it', async () => {
  const lock = takeLock({ stateDir: runtime.stateDir, env: runtime.env }, ID, 'change');
  expect(await repaired()).toMatchObject([
    { state: 'skipped', why: `process ${process.pid} is working on it` },
  ]);
  expect(calls).toEqual([]);
  if ('release' in lock) lock.release();
});

test('a change is in its cached result, and leaves no record', async () => {
  expect(await changeNetwork(ID, { options: { two: { rate: 5 } } }, runtime)).toMatchObject(RESULT);
  expect(calls).toEqual(['look two', 'do two']);
  const [changed] = listAttached(ID.network, runtime);
  expect(changed?.list?.plugins[1]?.conf).toEqual({ type: 'two', rate: 5 });
  expect(left()).toEqual([['net-c1-eth0'], []]);
});

describe('a change whose runner died', () => {
  /** The record as it was while `two` was called. */
  const interrupt = async () => {
    const kept = path.join(dir, 'kept');
    const notes = path.join(runtime.stateDir, 'unsettled');
    during = () => fs.cpSync(notes, kept, { recursive: true });
    await changeNetwork(ID, { options: { two: { rate: 5 } } }, runtime);
    during = () => {};
    fs.cpSync(kept, notes, { recursive: true });
    writeEntry(runtime.cacheDir, cached);
    calls.length = 0;
    const [record] = recordsIn(runtime.stateDir);
    expect(record).toMatchObject({ foreign: true, change: { plugins: [1] } });
    for (const runner of record?.runners ?? []) endRunner(runner);
  };

  test('is undone, and its record goes', async () => {
    await interrupt();
    await recover({ network: ID.network }, runtime);
    expect(calls).toEqual(['do two']);
    expect(left()).toEqual([['net-c1-eth0'], []]);
  });

  test('is undone, and what that put back is deleted if a DEL begins during that', async () => {
    await interrupt();
    during = () => endBy(150);
    await recover({ network: ID.network }, runtime);
    expect(calls).toEqual(['do two', 'the DEL ends', 'DEL two', 'DEL one']);
    expect(left()).toEqual([[], []]);
  });

  test('is undone by a repair, with the same end', async () => {
    await interrupt();
    during = () => calls.includes('CHECK one') || endBy(150);
    // Not by the recovery that comes first.
    expect(await repairOne(toKnown(), {}, runtime)).toMatchObject(DELETED);
    expect(calls).toEqual(['do two', ...CALLS, 'the DEL ends', 'DEL two', 'DEL one']);
    expect(left()).toEqual([[], []]);
  });

  test('is not settled by a repair once a deletion has begun', async () => {
    await interrupt();
    changeNote(({ change: _, ...note }) => ({ ...note, phase: 'deleting' }));
    forgetGeneration(runDir(runtime.env), ID);
    const skipped = await repairOne(theirs(), {}, runtime);
    expect(skipped).toMatchObject({ state: 'skipped', why: 'it has just been deleted' });
    expect(calls).toEqual([]);
    expect(recordsIn(runtime.stateDir)).toMatchObject([{ phase: 'deleting' }]);
  });

  test.each(['', 'an earlier boot'])('does not keep GC from deleting it (%s)', async boot => {
    await interrupt();
    if (boot) changeBoot(boot);
    const marked: boolean[] = [];
    const exec: Exec = call => {
      if (call.env.CNI_COMMAND === 'DEL') marked.push(isBeingRemoved(runtime.env, ID));
      return runtime.exec?.(call) ?? {};
    };
    await collectGarbage(parseFrozen(cached.source), { all: true }, { ...runtime, exec });
    expect(calls.filter(call => call.startsWith('DEL'))).toEqual(['DEL two', 'DEL one']);
    expect(marked).toEqual([true, true]);
    expect(left()).toEqual([[], []]);
  });

  test.each(['', 'an earlier boot'])('does not keep gc --gone from deleting it (%s)', async boot => {
    await interrupt();
    if (boot) changeBoot(boot);
    const interfaces = [{ name: 'cat-none' }, { name: 'eth0', sandbox: '/nowhere' }];
    const more = { netns: path.join(dir, 'gone'), result: { ...RESULT, interfaces } };
    writeEntry(runtime.cacheDir, { ...cached, ...more });
    changeNote(note => ({ ...note, ...more }));
    const list = () => standingOf([toKnown()]);
    const gone = (graceMs: number) => collectGone(list, { graceMs, dryRun: false }, runtime);
    expect(await gone(1)).toMatchObject([{ ...ID, state: 'deleted' }]);
    expect(calls).toEqual(['DEL two', 'DEL one']);
    expect(left()).toEqual([[], []]);
  });

  const toKnown = () => {
    const [known] = listAttachments({ cacheDir: runtime.cacheDir, journals: [runtime.stateDir] }).attachments;
    if (known === undefined) throw new Error('the attachment is not listed');
    return known;
  };
  const changeNote = (edit: (note: JsonObject) => object) => {
    const file = path.join(runtime.stateDir, 'unsettled', ID.network, `${ID.containerId}:${ID.ifname}`);
    fs.writeFileSync(file, `${JSON.stringify(edit(JSON.parse(fs.readFileSync(file, 'utf8'))))}\n`);
  };
  const changeBoot = (boot: string) => changeNote(note => ({ ...note, boot }));

  test.each([
    ['has deleted it', () => removeEntry(runtime.cacheDir, ID)],
    ['makes it again', () => void noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' })],
  ])('is forgotten if its runtime %s', async (_, act) => {
    await interrupt();
    act();
    await recover({ network: ID.network }, runtime);
    expect(calls).toEqual([]);
    expect(recordsIn(runtime.stateDir)).toEqual([]);
  });
});

/** The first plugin of a DEL removes the note, the runtime its result after the last one. */
function endBy(ms: number): void {
  forgetGeneration(runDir(runtime.env), ID);
  setTimeout(() => {
    calls.push('the DEL ends');
    removeEntry(runtime.cacheDir, ID);
  }, ms);
}

test('a DEL that begins during the repair is awaited, and what was put back is deleted', async () => {
  during = () => endBy(250);
  expect(await repaired()).toEqual([expect.objectContaining(DELETED)]);
  expect(calls).toEqual([...CALLS, 'the DEL ends', 'DEL two', 'DEL one']);
});

test('so it is where no note tells that a DEL has begun', async () => {
  forgetGeneration(runDir(runtime.env), ID);
  during = () => endBy(250);
  expect(await repaired()).toEqual([expect.objectContaining(DELETED)]);
  expect(calls).toEqual([...CALLS, 'the DEL ends', 'DEL two', 'DEL one']);
});

test('a DEL without a note is awaited for longer where the work took long', async () => {
  forgetGeneration(runDir(runtime.env), ID);
  let clock = 0;
  const now = spyOn(performance, 'now').mockImplementation(() => clock);
  const rest = (ms: number) => {
    clock += ms;
    if (clock > 8_000) removeEntry(runtime.cacheDir, ID);
    return Promise.resolve();
  };
  expect(await undoIfDeleted(theirs(), undefined, runtime, clock - 100, rest)).toBe(false);
  clock = 0;
  expect(await undoIfDeleted(theirs(), undefined, runtime, clock - 3_000, rest)).toBe(true);
  now.mockRestore();
  expect(calls).toEqual(['DEL two', 'DEL one']);
});

test('the watch neither reports nor mends what its runtime has begun to delete', async () => {
  const journals = [runtime.stateDir];
  const [one] = standingOf(listAttachments({ cacheDir: runtime.cacheDir, journals }).attachments);
  if (one === undefined) throw new Error('the attachment is not listed');
  const begin = async () => forgetGeneration(runDir(runtime.env), ID);
  const found = await examine(one, runtime, async () => {});
  if (found.state !== 'drifted') throw new Error(`it is ${found.state}`);
  calls.length = 0;
  await begin();
  expect(await found.mend(runtime)).toEqual({ state: undefined });
  expect(calls).toEqual([]);
  noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
  expect(await examine(one, runtime, begin)).toEqual({ state: 'passed over' });
  expect(calls).toEqual(['CHECK one', 'CHECK two']);
});

describe('undoIfDeleted()', () => {
  let clock = 0;
  /** Deletes as if each rest took its time at once. @returns the milliseconds that it rested */
  const undo = async (note: string | undefined, more: Partial<ChainRuntime> = {}): Promise<number> => {
    clock = 0;
    const now = spyOn(performance, 'now').mockImplementation(() => clock);
    const rest = async (ms: number) => {
      clock += ms;
    };
    try {
      expect(await undoIfDeleted(theirs(), note, { ...runtime, ...more }, 0, rest)).toBe(true);
      return clock;
    } finally {
      now.mockRestore();
    }
  };

  test('leaves what belongs to a DEL that does not end to the next one of its runtime', async () => {
    forgetGeneration(runDir(runtime.env), ID);
    expect(await undo('its note')).toBeGreaterThanOrEqual(15_000);
    expect([calls, left()]).toEqual([[], [['net-c1-eth0'], []]]);
  });

  test('waits for nothing once a later ADD has begun', async () => {
    expect(await undo('the note before')).toBe(0);
    expect([calls, left()]).toEqual([[], [['net-c1-eth0'], []]]);
  });

  test('tells plugins the result of the ADD, which its runtime has deleted', async () => {
    const told: unknown[] = [];
    const exec = ({ request }: ExecCall) => {
      told.push(JSON.parse(request).prevResult);
      return {};
    };
    const known = theirs();
    forgetGeneration(runDir(runtime.env), ID);
    removeEntry(runtime.cacheDir, ID);
    expect(await undoIfDeleted(known, 'its note', { ...runtime, exec }, 0)).toBe(true);
    expect(told).toEqual([RESULT, RESULT]);
  });

  test('lets a later ADD wait while it deletes', async () => {
    forgetGeneration(runDir(runtime.env), ID);
    removeEntry(runtime.cacheDir, ID);
    const marked: boolean[] = [];
    const exec = () => {
      marked.push(isBeingRemoved(runtime.env, ID));
      return {};
    };
    await undo('its note', { exec });
    expect(marked).toEqual([true, true]);
  });
});

test('a later ADD of the same name is left alone', async () => {
  during = () => noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
  setTimeout(() => removeEntry(runtime.cacheDir, ID), 250);
  expect(await repaired()).toEqual([expect.objectContaining(DELETED)]);
  expect(calls).toEqual(CALLS);
});

describe('one that its runtime deletes at that moment is deleted, and not cached again', () => {
  const DELS = ['the DEL ends', 'DEL two', 'DEL one'];

  test('in a change', async () => {
    during = () => endBy(0);
    const changing = changeNetwork(ID, { options: { two: { rate: 5 } } }, runtime);
    await expect(changing).rejects.toThrow('its runtime has just deleted it');
    expect(calls).toEqual(['look two', 'do two', ...DELS]);
    expect(left()).toEqual([[], []]);
  });

  /** What has become of it when `two` fails, and whether its DEL is still under way. */
  const FAILURES: readonly [
    what: string,
    act: (netns: string) => void,
    isUnderWay: boolean,
    dels: boolean,
  ][] = [
    ['whose namespace is gone, before any DEL', netns => fs.rmSync(netns), true, false],
    ['whose namespace is gone, during a DEL', netns => [fs.rmSync(netns), endBy(250)], false, true],
    ['whose namespace is gone, after a DEL', netns => [fs.rmSync(netns), endNow()], false, true],
    ['during a DEL', () => endBy(250), false, true],
    ['after a DEL', () => endNow(), false, true],
    ['that is being made again', () => [endNow(), begin()], false, false],
    [
      'that has been made again',
      () => [endNow(), begin(), writeEntry(runtime.cacheDir, { ...cached, args: [['K', '2']] })],
      true,
      false,
    ],
  ];
  const endNow = () => [forgetGeneration(runDir(runtime.env), ID), removeEntry(runtime.cacheDir, ID)];
  const begin = () => noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });

  test.each(FAILURES)('in a change that cannot be undone, %s: no note stays', async (_, act, ends, dels) => {
    const netns = path.join(dir, 'netns');
    fs.writeFileSync(netns, '');
    cached = { ...cached, netns };
    writeEntry(runtime.cacheDir, cached);
    const { exec } = runtime;
    let isOver = false;
    during = () => {
      if (!isOver) act(netns);
      isOver = true;
    };
    const failing = async (call: ExecCall) => {
      const reply = await exec?.(call);
      return call.env.CATENA_CHANGE === 'do'
        ? { exitCode: 1, stdout: '{"code":100,"msg":"no"}' }
        : (reply ?? {});
    };
    const changing = changeNetwork(ID, { options: { two: { rate: 5 } } }, { ...runtime, exec: failing });
    await expect(changing).rejects.toThrow('its runtime has just deleted it');
    if (ends) endNow();
    expect(left()).toEqual([[], []]);
    expect(fs.readdirSync(path.join(runtime.stateDir, 'unsettled', ID.network))).toEqual([]);
    expect(calls.filter(call => call.startsWith('DEL'))).toEqual(dels ? ['DEL two', 'DEL one'] : []);
  });

  test('in a handover', async () => {
    during = () => endBy(0);
    const [attached] = listAttached(ID.network, runtime);
    if (attached === undefined) throw new Error('the attachment is not listed');
    const why = 'its runtime has just deleted it';
    expect(await handOverOne(attached, 'do', runtime)).toMatchObject({ state: 'refused', why });
    expect(calls.slice(-DELS.length)).toEqual(DELS);
    expect(left()).toEqual([[], []]);
  });
});
