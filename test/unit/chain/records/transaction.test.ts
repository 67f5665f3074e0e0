// What does an ADD do about an earlier ADD, and what waits for it?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { endRunner, isBeingRemoved, startRunner } from '../../../../src/attachments/lock.ts';
import { identifyNetns } from '../../../../src/attachments/netns-identity.ts';
import { createNote, dropRecord } from '../../../../src/attachments/notes.ts';
import { hold } from '../../../../src/attachments/store.ts';
import { repair } from '../../../../src/chain/records/repair.ts';
import { settleEarlierAdd } from '../../../../src/chain/records/transaction.ts';
import { type ChainRuntime, holdCall } from '../../../../src/chain/run/runtime.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import { bootId, readRunningStat, thisProcess } from '../../../../src/files/process-stat.ts';
import { intentOf, settle as settled } from '../../../helpers/journal.ts';
import { makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';
import { untilStarted } from '../../../helpers/until.ts';

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const netns = '/proc/self/ns/net';

let chain: NoopChain;
let stateDir: string;
beforeEach(() => {
  chain = makeNoopChain();
  stateDir = path.join(chain.dir, 'state');
});
afterEach(() => chain.dispose());

const recorded = () => ({
  ...intentOf(ID),
  boot: bootId(chain.runtime.env),
  netns,
  ...identifyNetns(netns),
  cacheDir: chain.dir,
});

/** Of an attachment that exists, whatever the node says: our record names the namespace itself. */
function attached(): ChainRuntime {
  settled(stateDir, recorded());
  const witness = { findLife: () => Promise.resolve(undefined), hasInterface: () => false };
  return { ...chain.runtime, stateDir, openWitness: () => Promise.resolve(witness) };
}

async function settle(runtime: ChainRuntime): Promise<string | undefined> {
  const held = await hold(ID, holdCall(runtime, 'add'));
  try {
    return await settleEarlierAdd(ID, held, runtime);
  } finally {
    held.release();
  }
}

test('an attachment on record is an earlier ADD', async () => {
  expect(await settle(attached())).toBe(path.join(chain.dir, 'results/testnet-c1-eth0'));
});

test('plugins of an ADD do not wait for the removal of what was cut off before it', async () => {
  const runtime = { ...chain.runtime, stateDir };
  const runner = startRunner();
  createNote(stateDir, { ...recorded(), runner });
  endRunner(runner);
  const held = await hold(ID, holdCall(runtime, 'add'));
  await settleEarlierAdd(ID, held, runtime);
  expect(isBeingRemoved(runtime.env, ID)).toBe(false);
  held.release();
});

test.each([
  ['an ADD of what nothing is known of', () => settle({ ...chain.runtime, stateDir })],
  ['a repair', () => repair({}, attached())],
])('%s waits for what a dead operation has left at work', async (_, work) => {
  const { env } = chain.runtime;
  const dead = `999998-${process.pid}`;
  const dir = path.join(runDir(env), 'locks/own/testnet/c1:eth0');
  fs.mkdirSync(dir, { recursive: true });
  const target = `add ${thisProcess().pidns} ${bootId(env)} 60000 ${Date.now()}`;
  fs.symlinkSync(target, path.join(dir, `${dead}-1`));
  const names = { CATENA_RUNNER: dead, CNI_CONTAINERID: 'c1', CNI_IFNAME: 'eth0' };
  const orphan = Bun.spawn(['sleep', '100'], { env: { PATH: process.env.PATH ?? '', ...names } });
  await untilStarted(orphan, 'CATENA_RUNNER');
  setTimeout(() => orphan.kill(), 700);
  await work();
  expect(readRunningStat(orphan.pid)).toBeUndefined();
});

test('another operation waits as long as this one holds the attachment', async () => {
  const runtime = attached();
  const held = await hold(ID, holdCall(runtime, 'add'));
  const second = hold(ID, holdCall({ ...runtime, signal: AbortSignal.abort() }, 'del'));
  await expect(second).rejects.toMatchObject({
    code: 11,
    message: expect.stringContaining('has been working on it'),
  });
  held.release();
  (await hold(ID, holdCall(runtime, 'del'))).release();
});

test('an operation that only the record names is waited for, too: the run directory may have been lost', async () => {
  const runtime = attached();
  dropRecord(stateDir, ID);
  const runner = startRunner();
  createNote(stateDir, { ...recorded(), runner });
  await expect(hold(ID, holdCall({ ...runtime, signal: AbortSignal.abort() }, 'del'))).rejects.toMatchObject({
    code: 11,
  });
  endRunner(runner);
  (await hold(ID, holdCall(runtime, 'del'))).release();
});
