// Does an ADD see what became of an earlier ADD while it looked?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import path from 'node:path';
import { settleEarlierAdd } from '../../../../src/chain/records/earlier-add.ts';
import type { ChainRuntime } from '../../../../src/chain/run/runtime.ts';
import { bootId } from '../../../../src/files/boot-id.ts';
import { createRecord } from '../../../../src/journal/create-record.ts';
import { identifyNetns } from '../../../../src/journal/netns-identity.ts';
import { endRunner, startRunner } from '../../../../src/journal/runner.ts';
import { dropRecord, replaceRecord } from '../../../../src/journal/store.ts';
import { intentOf } from '../../../helpers/journal.ts';
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

/** An adopted attachment without a cached result; `look` is what happens while the node is asked for its interface. */
function adopted(look: () => boolean): ChainRuntime {
  const intent = { ...recorded(), adopted: true as const };
  replaceRecord(stateDir, intent, [{ event: 'done', op: intent.runner.op }]);
  endRunner(intent.runner);
  const witness = { findLife: () => Promise.resolve(undefined), hasInterface: look };
  return { ...chain.runtime, stateDir, openWitness: () => Promise.resolve(witness) };
}

test('an adopted attachment whose interface exists is an earlier ADD', async () => {
  const runtime = adopted(() => true);
  expect(await settleEarlierAdd(ID, runtime)).toBe(path.join(stateDir, 'attachments/testnet/c1:eth0'));
});

test('one that its runtime has deleted is not', async () => {
  const runtime = adopted(() => false);
  expect(await settleEarlierAdd(ID, runtime)).toBeUndefined();
});

test('if another process drops its record and begins an ADD during the look, that ADD is waited for', async () => {
  const runner = startRunner();
  const runtime = adopted(() => {
    dropRecord(stateDir, ID);
    createRecord(stateDir, { ...recorded(), runner })?.close();
    return false;
  });
  const waiting = settleEarlierAdd(ID, { ...runtime, signal: AbortSignal.abort() });
  await expect(waiting).rejects.toMatchObject({
    code: 11,
    message: expect.stringContaining('has been working on it'),
  });
  endRunner(runner);
});
