// Does what a repair puts back stay only if the attachment does, although its runtime knows no claims?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { changeNetwork } from '../../../../src/chain/change/change.ts';
import type { CachedAttachment } from '../../../../src/chain/records/cache-record.ts';
import { noteOf } from '../../../../src/chain/records/others-del.ts';
import { repair, repairOthers } from '../../../../src/chain/records/repair.ts';
import { removeAttachment, writeAttachment } from '../../../../src/chain/records/result-cache.ts';
import type { ChainRuntime } from '../../../../src/chain/run/runtime.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import { bootId } from '../../../../src/files/boot-id.ts';
import { listAttached } from '../../../../src/handover/attachments.ts';
import { handOverOne } from '../../../../src/handover/hand-over.ts';
import { forgetGeneration, noteGeneration } from '../../../../src/journal/generation.ts';
import { identifyNetns } from '../../../../src/journal/netns-identity.ts';
import { endRunner } from '../../../../src/journal/runner.ts';
import { listRecords, replaceRecord } from '../../../../src/journal/store.ts';
import { intentOf } from '../../../helpers/journal.ts';

const ID = { network: 'net', containerId: 'c1', ifname: 'eth0' };
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };
const LIST = { cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'one' }, { type: 'two' }] };

let dir: string;
let calls: string[];
/** What happens while `two` puts it back. */
let during: () => void;
let runtime: ChainRuntime & { cacheDir: string };
let cached: CachedAttachment;

beforeEach(() => {
  dir = fs.mkdtempSync(path.join(tmpdir(), 'cat-cached-'));
  [calls, during] = [[], () => {}];
  runtime = {
    pluginDirs: [],
    cacheDir: path.join(dir, 'cache'),
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
  writeAttachment(runtime.cacheDir, cached);
  noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const CALLS = ['CHECK one', 'CHECK two', 'CHECK two'];

test('an attachment that exists is repaired and kept', async () => {
  const { links } = await repairOthers(cached, {}, runtime, noteOf(ID, runtime));
  expect(links.map(({ state }) => state)).toEqual(['sound', 'mended']);
  expect(calls).toEqual(CALLS);
});

/** The first plugin of a DEL removes the note, the runtime its result after the last one. */
function endBy(ms: number): void {
  forgetGeneration(runDir(runtime.env), ID);
  setTimeout(() => {
    calls.push('the DEL ends');
    removeAttachment(runtime.cacheDir, ID);
  }, ms);
}

test('a DEL that begins during the repair is awaited, and what was put back is deleted', async () => {
  during = () => endBy(250);
  expect(await repairOthers(cached, {}, runtime, noteOf(ID, runtime))).toMatchObject({ state: 'skipped' });
  expect(calls).toEqual([...CALLS, 'the DEL ends', 'DEL two', 'DEL one']);
});

test('so it is where no note tells that a DEL has begun', async () => {
  forgetGeneration(runDir(runtime.env), ID);
  during = () => endBy(250);
  expect(await repairOthers(cached, {}, runtime, undefined)).toMatchObject({ state: 'skipped' });
  expect(calls).toEqual([...CALLS, 'the DEL ends', 'DEL two', 'DEL one']);
});

test('a later ADD of the same name is left alone', async () => {
  during = () => noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
  setTimeout(() => removeAttachment(runtime.cacheDir, ID), 250);
  expect(await repairOthers(cached, {}, runtime, noteOf(ID, runtime))).toMatchObject({ state: 'skipped' });
  expect(calls).toEqual(CALLS);
});

describe('an adopted attachment that its runtime deletes at that moment is deleted with its record, and not cached again', () => {
  const DELETED = ['the DEL ends', 'DEL two', 'DEL one'];
  let adopted: ChainRuntime & { stateDir: string };
  beforeEach(() => {
    adopted = { ...runtime, stateDir: path.join(dir, 'state') };
    const { cacheDir } = runtime;
    const executables = LIST.plugins.map(({ type }) => `/somewhere/${type}`);
    const { source, ...known } = { ...cached, source: JSON.stringify(LIST) };
    const place = { ...identifyNetns(cached.netns), boot: bootId(runtime.env), cacheDir, executables };
    const intent = { ...intentOf({ ...known, source, ...place }), adopted: true as const };
    const result = { event: 'link', verb: 'ADD', index: 0, result: RESULT } as const;
    replaceRecord(adopted.stateDir, intent, [
      result,
      { event: 'link', verb: 'ADD', index: 1, same: true },
      { event: 'done', op: intent.runner.op },
    ]);
    endRunner(intent.runner);
  });
  const left = () => [
    fs.readdirSync(path.join(runtime.cacheDir, 'results')),
    listRecords(adopted.stateDir).records,
  ];

  test('in a repair', async () => {
    during = () => endBy(0);
    const { attachments } = await repair({}, adopted);
    expect(attachments).toMatchObject([{ ...ID, state: 'skipped', why: 'its runtime has just deleted it' }]);
    expect(calls).toEqual([...CALLS, ...DELETED]);
    expect(left()).toEqual([[], []]);
  });

  test('in a change', async () => {
    during = () => endBy(0);
    const changing = changeNetwork(ID, { options: { two: { rate: 5 } } }, adopted);
    await expect(changing).rejects.toThrow('its runtime has just deleted it');
    expect(calls).toEqual(['look two', 'do two', ...DELETED]);
    expect(left()).toEqual([[], []]);
  });

  test('in a handover', async () => {
    during = () => endBy(0);
    const [attached] = listAttached(ID.network, adopted);
    if (attached === undefined) throw new Error('the attachment is not listed');
    const why = 'its runtime has just deleted it';
    expect(await handOverOne(attached, 'do', adopted)).toMatchObject({ state: 'refused', why });
    expect(calls.slice(-DELETED.length)).toEqual(DELETED);
    expect(left()).toEqual([[], []]);
  });
});
