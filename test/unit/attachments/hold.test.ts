import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { sweepCache, writeEntry } from '../../../src/attachments/entries.ts';
import { type Held, type HeldKnown, hold, pastOf, tryHold } from '../../../src/attachments/hold.ts';
import {
  buryOwner,
  endRunner,
  type LockPlace,
  type Purpose,
  type Runner,
  startRunner,
} from '../../../src/attachments/lock.ts';
import {
  begunAdd,
  createNote,
  type KnownAttachment,
  noteFileOf,
  ofEntry,
  readRecord,
} from '../../../src/attachments/notes.ts';
import { cacheFileOf, digestOf } from '../../../src/cni/attachment.ts';
import { bootId, readRunningStat } from '../../../src/files/process-stat.ts';
import { unfinishedName } from '../../../src/files/put-file.ts';
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
  createNote(dir, intentOf({ runner, cacheDir: run }));
  endRunner(runner);
}
/** For a DEL, which is noted. */
function attempt(purpose: Purpose = 'del'): HeldKnown | { readonly holder: Runner } | undefined {
  const held = tryHold(ID, { ...place, purpose });
  if ('holder' in held) return held;
  const { known } = held;
  if (!known) held.release();
  else if (purpose === 'del') held.beginDel();
  return known;
}
function won(held: ReturnType<typeof attempt>): HeldKnown {
  if (held && 'drop' in held) return held;
  throw new Error(`not held: ${JSON.stringify(held)}`);
}
function end(work: (held: HeldKnown) => void, held = won(attempt())): void {
  work(held);
  held.release();
}
const busy = (msg: string) => (held: HeldKnown) => held.fail([new Error(msg)]);
const drop = (held: HeldKnown) => held.drop();

describe('tryHold()', () => {
  test('knows nothing without a record', () => expect(attempt()).toBeUndefined());

  test('names the process at work, and leaves its record unchanged', () => {
    const runner = startRunner();
    createNote(dir, intentOf({ runner, cacheDir: run }));
    const before = fs.readFileSync(noteFileOf(dir, ID), 'utf8');
    expect(attempt()).toEqual({ holder: runner });
    expect(fs.readFileSync(noteFileOf(dir, ID), 'utf8')).toBe(before);
    endRunner(runner);
  });

  test('gives it to one of many', () => {
    abandoned();
    const tries = Array.from({ length: 10 }, () => attempt());
    expect(tries.filter(held => held && 'drop' in held)).toHaveLength(1);
    end(drop, won(tries[0]));
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
    expect(attempt()).toBeUndefined();
  });

  test('writes nothing before something begins, and removes a note that is over', () => {
    abandoned();
    const file = noteFileOf(dir, ID);
    const before = fs.readFileSync(file, 'utf8');
    end(() => {}, won(attempt('repair')));
    expect(fs.readFileSync(file, 'utf8')).toBe(before);
    const intent = intentOf({ cacheDir: run, result: { cniVersion: '1.1.0' } });
    settle(dir, intent);
    end(({ record }) => expect(record.phase).toBe('attached'), won(attempt('repair')));
    expect(fs.existsSync(file)).toBe(false);
  });

  test('passes it on when it ends in failure', () => {
    abandoned();
    end(busy('busy'));
    expect(readRecord(dir, ID)).toMatchObject({
      phase: 'failed',
      attempts: 1,
      lastErrors: [{ msg: 'busy' }],
    });
    end(busy('busy again'));
    expect(readRecord(dir, ID)).toMatchObject({ attempts: 2, lastErrors: [{ msg: 'busy again' }] });
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual(['testnet/c1:eth0']);
  });

  test('notes a change of a settled attachment until that is undone', () => {
    settle(dir, intentOf({ cacheDir: path.join(run, 'cache'), result: { cniVersion: '1.1.0' } }));
    const held = won(attempt('change'));
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
    held.beginChange({ to: { capabilityArgs: {}, source: '{}' }, plugins: [] });
    expect(readRecord(dir, ID)?.runners).toHaveLength(1);
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual(['testnet/c1:eth0']);
    held.abandon();
    held.release();
    expect(readRecord(dir, ID)).toMatchObject({ runners: [], phase: 'attached', isNoted: false });
    expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
  });

  test('commits a change in the entry, unless that is of a later ADD by then', () => {
    const cacheDir = path.join(run, 'cache');
    const to = { capabilityArgs: { mac: 'y' }, source: '{}', result: { cniVersion: '1.1.0' } };
    for (const isRemade of [false, true]) {
      settle(dir, intentOf({ cacheDir, result: { cniVersion: '1.1.0' } }));
      const held = won(attempt('change'));
      held.beginChange({ to, plugins: [0] });
      if (isRemade) settle(dir, intentOf({ cacheDir, owner: 'later' }));
      held.commit(to);
      held.release();
      const found = readRecord(dir, ID);
      expect([found?.owner, found?.source]).toEqual(isRemade ? ['later', intentOf().source] : ['test', '{}']);
      expect(filesBelow(path.join(dir, 'unsettled'))).toEqual([]);
    }
  });

  test.each([
    ['before the new entry was there is undone', false],
    ['after that stands', true],
  ])('finds one entry, in its place, once a change that died %s, however old it is', async (_, isThere) => {
    const cacheDir = path.join(run, 'cache');
    const file = cacheFileOf(cacheDir, ID);
    const aside = path.join(path.dirname(file), `.catena-aside-${digestOf(path.basename(file))}`);
    const to = { capabilityArgs: { mac: 'y' }, source: '{}', result: { cniVersion: '1.1.0' } };
    settle(dir, intentOf({ cacheDir, result: { cniVersion: '1.1.0' } }));
    const former = fs.readFileSync(file);
    const dead = won(attempt('change'));
    dead.beginChange({ to, plugins: [0] });
    const note = JSON.parse(fs.readFileSync(noteFileOf(dir, ID), 'utf8'));
    const runners = [{ ...note.runners[0], pid: 2 ** 22 + 1, start: '1' }];
    if (isThere) dead.commit(to);
    dead.release();
    fs.writeFileSync(noteFileOf(dir, ID), `${JSON.stringify({ ...note, runners })}\n`);
    if (!isThere) fs.rmSync(file);
    fs.writeFileSync(aside, former);
    fs.utimesSync(aside, 1, 1);
    sweepCache(cacheDir);
    const held = won(attempt('change'));
    await held.awaitOrphans();
    if (!isThere) held.abandon();
    held.release();
    expect(readRecord(dir, ID)).toMatchObject({ source: isThere ? '{}' : intentOf().source, isNoted: false });
    expect(filesBelow(path.dirname(file))).toEqual([path.basename(file)]);
  });

  test('does not let a record grow forever', () => {
    abandoned();
    for (let i = 1; i <= 100; i++) end(busy(`attempt ${i}`));
    expect(readRecord(dir, ID)).toMatchObject({
      attempts: 100,
      lastErrors: [{ msg: 'attempt 100' }],
      args: [['K', 'v']],
    });
    expect(fs.statSync(noteFileOf(dir, ID)).size).toBeLessThan(2000);
  });

  test('passes on what a killed process had that the freezer keeps, though the note still names it', () => {
    const start = readRunningStat(1)?.start ?? '';
    const runner = { ...startRunner(), pid: 1, start, op: `1-${start}-1` };
    createNote(dir, intentOf({ runner, cacheDir: run }));
    const lock = path.join(run, 'locks/own/testnet/c1:eth0');
    fs.mkdirSync(lock, { recursive: true });
    fs.symlinkSync(`add ${runner.pidns} ${bootId(place.env)}  ${Date.now()}`, path.join(lock, runner.op));
    expect(attempt()).toMatchObject({ holder: { pid: 1 } });
    buryOwner(place, ID, runner);
    end(drop);
    expect(readRecord(dir, ID)).toBeUndefined();
  });

  test('passes to another process only when the first has ended', async () => {
    const { child, worker, other } = await startHolder();
    expect(attempt()).toMatchObject({ holder: { pid: child.pid } });
    child.kill('SIGKILL');
    await child.exited;
    for (const pid of [worker, other]) process.kill(pid, 'SIGKILL');
    end(drop);
  });
});

/** A process that adds the attachment until it is ended, with a worker and a process that is nothing to us. */
async function startHolder() {
  const program = `
    const { createNote } = await import('${path.resolve('src/attachments/notes.ts')}');
    const { intentOf } = await import('${path.resolve('test/helpers/journal.ts')}');
    const { processOf, WORKER_VARIABLE } = await import('${path.resolve('src/files/process-stat.ts')}');
    const start = env => Bun.spawn(['sleep', '60'], { env: { ...process.env, ...env } }).pid;
    createNote('${dir}', intentOf());
    console.log(JSON.stringify([start({ [WORKER_VARIABLE]: processOf() }), start({})]));
    setInterval(() => {}, 1000);`;
  const child = Bun.spawn([process.execPath, '-e', program], { stdout: 'pipe', env: process.env });
  const { value } = await child.stdout.getReader().read();
  const [worker = 0, other = 0]: number[] = JSON.parse(Buffer.from(value ?? []).toString());
  return { child, worker, other };
}

test('hold() ends a process that is stopped, and no other', async () => {
  const { child, worker, other } = await startHolder();
  const warnings: string[] = [];
  const call = {
    ...place,
    purpose: 'del',
    onWarning: ({ message }: Error) => warnings.push(message),
  } as const;
  const waiting = hold(ID, { ...call, signal: AbortSignal.timeout(1_500) });
  await expect(waiting).rejects.toThrow(`process ${child.pid} has been working on it since`);
  expect([warnings, child.killed]).toEqual([[], false]);
  child.kill('SIGSTOP');
  (await hold(ID, call)).release();
  expect(warnings.join()).toContain(`Ended process ${child.pid}, which was stopped`);
  await child.exited;
  expect([worker, other].map(pid => readRunningStat(pid) !== undefined)).toEqual([false, true]);
  process.kill(other, 'SIGKILL');
});

test.each([
  ['is the same', (_: string) => {}, true],
  ['has ended', (netns: string) => fs.rmSync(netns), true],
  ['was replaced by another one', (netns: string) => relink(netns, '/proc/self/ns/mnt'), false],
])('an ADD whose namespace %s while plugins ran', (_, happens, succeeds) => {
  const netns = path.join(run, 'netns');
  relink(netns, '/proc/self/ns/net');
  const held = holdFree('add');
  held.beginAdd(intentOf({ netns, cacheDir: run }), false);
  happens(netns);
  const commit = () => held.commit({ result: { cniVersion: '1.1.0' } });
  if (succeeds) commit();
  else expect(commit).toThrow('was replaced by another namespace while plugins ran');
  expect(fs.existsSync(path.join(run, 'results'))).toBe(succeeds);
  held.release();
});

/** Also of what nothing is known of. */
function holdFree(purpose: Purpose): Held {
  const held = tryHold(ID, { ...place, cacheDir: run, purpose });
  if ('holder' in held) throw new Error('it is not free');
  return held;
}

test('an entry that outlived its attachment is not taken for that of an ADD which is cut off', () => {
  settle(dir, intentOf({ cacheDir: run }));
  const held = holdFree('add');
  held.beginAdd(intentOf({ cacheDir: run }), false);
  held.progress(0);
  expect(readRecord(dir, ID)).toMatchObject({ phase: 'adding', segment: 0, isNoted: true });
  held.abandon();
  held.release();
});

test('an ADD is noted with its first segment, and not before', () => {
  const held = holdFree('add');
  held.beginAdd(intentOf({ cacheDir: run }), false);
  expect(fs.existsSync(noteFileOf(dir, ID))).toBe(false);
  held.progress(2);
  expect(readRecord(dir, ID)).toMatchObject({ phase: 'adding', segment: 2 });
  held.commit({ result: { cniVersion: '1.1.0' } });
  held.release();
  expect(fs.existsSync(noteFileOf(dir, ID))).toBe(false);
  expect(readRecord(dir, ID)).toMatchObject({ phase: 'attached', isNoted: false });
});

test('an ADD whose entry no file system takes is refused before anything is noted', () => {
  const id = { ...ID, network: 'n'.repeat(250) };
  const held = tryHold(id, { ...place, cacheDir: run, purpose: 'add' }) as Held;
  const begin = () => held.beginAdd(intentOf({ cacheDir: run }), false);
  expect(begin).toThrow(/a file name of 258 bytes is longer than 255; choose a shorter name for the network/);
  expect(fs.existsSync(noteFileOf(dir, id))).toBe(false);
  held.release();
});

test('an ADD over an earlier one is found by its journal, which has never had a note', () => {
  const held = holdFree('add');
  held.beginAdd(intentOf({ cacheDir: run }), true);
  held.commit({ result: { cniVersion: '1.1.0' } });
  held.release();
  expect(readRecord(dir, ID)).toMatchObject({ phase: 'attached', isNoted: false });
});

test('what a change had taken aside of another runtime goes, and the entry stays to its runtime', () => {
  const { network, containerId, ifname, netns, args, capabilityArgs, source } = intentOf();
  const entry = { network, containerId, ifname, netns, args, capabilityArgs, source };
  const held = holdFree('change');
  held.adopt(ofEntry(entry, run, []), undefined);
  const file = cacheFileOf(run, ID);
  writeEntry(run, entry);
  fs.renameSync(file, path.join(path.dirname(file), `.catena-aside-${digestOf(path.basename(file))}`));
  writeEntry(run, entry);
  held.forget();
  held.release();
  expect(filesBelow(path.dirname(file))).toEqual([path.basename(file)]);
});

test.each([
  ['a DEL', (held: Held) => held.beginDel()],
  ['the end of its orphans', (held: Held) => held.awaitOrphans()],
])('%s removes what a dead operation had written of an entry', async (_, work) => {
  const dead = { ...startRunner(), pid: 2 ** 22 + 1, start: '1', op: `${2 ** 22 + 1}-1-1` };
  createNote(dir, intentOf({ cacheDir: run, runner: dead }));
  const half = path.join(run, 'results', unfinishedName().replace(/-\d+-\d+-/, `-${dead.pid}-1-`));
  fs.mkdirSync(path.dirname(half));
  fs.writeFileSync(half, '{');
  const held = holdFree('repair');
  await work(held);
  expect(fs.existsSync(half)).toBe(false);
  held.release();
});

function relink(path: string, target: string): void {
  fs.rmSync(path, { force: true });
  fs.symlinkSync(target, path);
}

describe('what is left of an attachment', () => {
  const dead = startRunner();
  endRunner(dead);
  const base = begunAdd(intentOf({ boot: bootId(), runner: dead }), '/state/note');
  const attached = { phase: 'attached', added: true } as const;
  const change = { to: { capabilityArgs: {}, source: '{}' }, plugins: [], op: 'x' };
  const busy = [{ code: 11, msg: 'busy' }];

  test.each([
    ['settled', undefined, attached],
    ['changing', undefined, { ...attached, change }],
    ['adding', 'its ADD was interrupted', {}],
    ['deleting', 'its DEL was interrupted', { phase: 'deleting', change }],
    ['left', 'its DEL failed once: busy', { phase: 'failed', attempts: 1, lastErrors: busy }],
    ['left', 'its DEL failed 3 times: busy', { phase: 'failed', attempts: 3, lastErrors: busy }],
    ['outlived', 'it is from an earlier boot of the machine', { ...attached, boot: 'earlier' }],
    ['outlived', 'it is from an earlier boot of the machine', { boot: 'earlier' }],
    ['settled', undefined, { ...attached, boot: 'earlier', foreign: true }],
    [
      'outlived',
      'it is from an earlier boot of the machine',
      { phase: 'deleting', boot: 'earlier', foreign: true },
    ],
  ] as [string, string | undefined, Partial<KnownAttachment>][])('%s (%s): %j', (kind, why, more) => {
    const record = { ...base, ...more };
    const stands = more.phase === 'attached';
    expect(pastOf(record, process.env)).toMatchObject({
      kind,
      why,
      stands,
      holder: undefined,
      toDelete: why,
    } as never);
  });

  test('what a process works on, or was made in another network namespace, stays', () => {
    const runner = startRunner();
    expect(pastOf({ ...base, runners: [runner] }, process.env)).toMatchObject({
      holder: runner,
      toDelete: undefined,
    });
    endRunner(runner);
    const elsewhere = { ...base, hostCookie: '1' };
    expect(pastOf(elsewhere, process.env)).toMatchObject({ kind: 'elsewhere', toDelete: undefined });
  });
});
