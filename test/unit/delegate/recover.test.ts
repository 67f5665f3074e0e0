import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { listRecords, readRecord } from '../../../src/attachments/store.ts';
import type { ChainRuntime } from '../../../src/chain/run/runtime.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import { recoverPods } from '../../../src/delegate/recover.ts';
import { KEY, makePod, makeRunner, type TestRunner } from '../../helpers/delegates.ts';
import { withoutOurs } from '../../helpers/journal.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

let chain: NoopChain;
let runner: TestRunner;
beforeEach(async () => {
  chain = makeNoopChain();
  runner = makeRunner(chain, { delegates: ['one', 'two'].map(network) });
  runner = { ...runner, runtime: { ...runner.runtime, env: { ...process.env, CATENA_BOOT_ID: 'first' } } };
  await addPod(runner, makePod());
});
afterEach(() => chain.dispose());

const network = (name: string): JsonObject => ({ cniVersion: '1.1.0', name, plugins: [chain.noop(name)] });
const recover = (more: Partial<ChainRuntime> = {}) =>
  recoverPods(
    runner.podsDir,
    { all: true },
    {
      ...runner.runtime,
      env: { ...process.env, CATENA_BOOT_ID: 'second' },
      ...more,
    },
  );
const deleted = () => chain.order().slice(2);

/** Another runtime attaches the pod to a network again, and writes that down where ours finds it. */
function attachAgain(name: string): void {
  const [file = ''] = fs
    .readdirSync(path.join(runner.runtime.cacheDir, 'results'))
    .filter(one => one.startsWith(`${name}-`))
    .map(one => path.join(runner.runtime.cacheDir, 'results', one));
  withoutOurs(file);
}

describe('recoverPods() after a reboot', () => {
  test('deletes the attachments of a pod', async () => {
    expect(await recover()).toMatchObject([{ ...KEY, why: 'it is from an earlier boot of the machine' }]);
    expect(deleted()).toEqual(['DEL two', 'DEL one']);
  });

  test('leaves a network alone that another runtime has attached to the pod again', async () => {
    attachAgain('two');
    await recover();
    expect(deleted()).toEqual(['DEL one']);
    expect(listRecords(runner.runtime.stateDir).records).toEqual([]);
    expect(readRecord(runner.podsDir, KEY)).toBeUndefined();
  });

  test('examines the node when there is no cached result', async () => {
    const asked: string[] = [];
    const openWitness: ChainRuntime['openWitness'] = async () => ({
      async findLife(list) {
        asked.push(list.name);
        return list.name === 'one' ? 'a lease of this boot' : undefined;
      },
      hasInterface: () => true,
    });
    fs.rmSync(path.join(runner.runtime.cacheDir, 'results'), { recursive: true });
    await recover({ openWitness });
    expect(asked).toContain('one');
    expect(deleted()).toEqual(['DEL two']);
  });
});
