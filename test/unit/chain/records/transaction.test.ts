// What does an ADD do about an earlier ADD, and what waits for it?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import path from 'node:path';
import { endRunner, startRunner } from '../../../../src/attachments/lock.ts';
import { identifyNetns } from '../../../../src/attachments/netns-identity.ts';
import { createNote, dropRecord } from '../../../../src/attachments/notes.ts';
import { hold } from '../../../../src/attachments/store.ts';
import { settleEarlierAdd } from '../../../../src/chain/records/transaction.ts';
import { type ChainRuntime, holdCall } from '../../../../src/chain/run/runtime.ts';
import { bootId } from '../../../../src/files/process-stat.ts';
import { intentOf, settle as settled } from '../../../helpers/journal.ts';
import { makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

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
