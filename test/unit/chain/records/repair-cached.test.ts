// Does what a repair puts back stay only if the attachment does, although its runtime knows no claims?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { CachedAttachment } from '../../../../src/chain/records/cache-record.ts';
import { noteOf, repairCached } from '../../../../src/chain/records/repair-cached.ts';
import { removeAttachment, writeAttachment } from '../../../../src/chain/records/result-cache.ts';
import type { ChainRuntime } from '../../../../src/chain/run/runtime.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import { forgetGeneration, noteGeneration } from '../../../../src/journal/generation.ts';

const ID = { network: 'net', containerId: 'c1', ifname: 'eth0' };
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };
const LIST = { cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'one' }, { type: 'two' }] };

let dir: string;
let calls: string[];
/** What happens while `two` is checked. */
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
      calls.push(`${env.CNI_COMMAND} ${path.basename(file)}`);
      if (env.CNI_COMMAND === 'CHECK' && file.endsWith('two')) during();
      return { stdout: '' };
    },
  };
  const inputs = { netns: '/proc/self/ns/net', args: [], capabilityArgs: {}, source: JSON.stringify(LIST) };
  cached = { ...ID, ...inputs, result: RESULT };
  writeAttachment(runtime.cacheDir, cached);
  noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const CHECKS = ['CHECK one', 'CHECK two'];

test('an attachment that exists is checked and kept', async () => {
  const plugins = await repairCached(cached, noteOf(ID, runtime), runtime);
  expect(plugins?.map(({ state }) => state)).toEqual(['sound', 'sound']);
  expect(calls).toEqual(CHECKS);
});

test('a DEL that begins during the repair is awaited, and what was put back is deleted', async () => {
  during = () => {
    // The first plugin of a DEL removes the note, the runtime its result after the last one.
    forgetGeneration(runDir(runtime.env), ID);
    setTimeout(() => {
      calls.push('the DEL ends');
      removeAttachment(runtime.cacheDir, ID);
    }, 250);
  };
  expect(await repairCached(cached, noteOf(ID, runtime), runtime)).toBeUndefined();
  expect(calls).toEqual([...CHECKS, 'the DEL ends', 'DEL two', 'DEL one']);
});

test('a later ADD of the same name is left alone', async () => {
  during = () => noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
  setTimeout(() => removeAttachment(runtime.cacheDir, ID), 250);
  expect(await repairCached(cached, noteOf(ID, runtime), runtime)).toBeUndefined();
  expect(calls).toEqual(CHECKS);
});
