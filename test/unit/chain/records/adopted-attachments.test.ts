// Is an adopted attachment left alone that its own runtime has deleted, and may be making again?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import path from 'node:path';
import { recover } from '../../../../src/chain/records/recover.ts';
import type { ChainRuntime } from '../../../../src/chain/run/runtime.ts';
import { bootId } from '../../../../src/files/boot-id.ts';
import { identifyNetns } from '../../../../src/journal/netns-identity.ts';
import { endRunner, startRunner } from '../../../../src/journal/runner.ts';
import { listRecords, markRecord, replaceRecord } from '../../../../src/journal/store.ts';
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

test.each([
  [false, 0],
  [true, 1],
])(
  'a DEL of it that was interrupted is finished only if its interface exists: %p',
  async (exists, deletions) => {
    const boot = bootId(chain.runtime.env);
    const where = { boot, netns, ...identifyNetns(netns), cacheDir: chain.dir };
    const intent = { ...intentOf(ID), ...where, adopted: true as const };
    const runner = startRunner();
    const lines = [
      { event: 'done', op: intent.runner.op },
      { event: 'begin', verb: 'DEL', runner },
    ] as const;
    replaceRecord(stateDir, intent, lines);
    markRecord(stateDir, ID);
    for (const ended of [intent.runner, runner]) endRunner(ended);
    const witness = { findLife: () => Promise.resolve(undefined), hasInterface: () => exists };
    let deleted = 0;
    const runtime: ChainRuntime = {
      ...{ ...chain.runtime, stateDir, openWitness: () => Promise.resolve(witness) },
      exec: async ({ env }) => {
        if (env.CNI_COMMAND === 'DEL') deleted++;
        return { stdout: '' };
      },
    };
    await recover({ all: true }, runtime);
    expect(deleted).toBe(deletions);
    expect(listRecords(stateDir).records).toEqual([]);
  },
);
