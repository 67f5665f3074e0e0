import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { removeAttachment } from '../../../src/chain/result-cache.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import { deletePod } from '../../../src/delegate/delete.ts';
import { readRecord } from '../../../src/delegate/record.ts';
import { KEY, makePod, makeRunner, type TestRunner } from '../../helpers/delegates.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

const NETNS = '/proc/self/ns/net';
let chain: NoopChain;
let runner: TestRunner;
beforeEach(async () => {
  chain = makeNoopChain();
  const delegates = ['one', 'two', 'three'].map(name => network(name));
  runner = makeRunner(chain, { delegates });
  await addPod(runner, makePod({ args: 'A=1', capabilityArgs: { ports: [80] } }));
});
afterEach(() => chain.dispose());

const network = (name: string): JsonObject => ({
  cniVersion: '1.1.0',
  name,
  plugins: [chain.noop(name, {}, { capabilities: { ports: true } })],
});
const deleted = () => chain.order().slice(3);
const recorded = () => readRecord(runner.recordDir, KEY)?.networks.map(one => one.network);
const file = () => path.join(runner.recordDir, 'outer,c1,eth0.json');

describe('deletePod()', () => {
  test('goes last first, with what ADD had, and the record goes with the last', async () => {
    await deletePod(runner, KEY, NETNS);
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
    const { env, request } = chain.calls().at(-1) ?? {};
    expect(env).toMatchObject({ CNI_ARGS: 'A=1', CNI_NETNS: NETNS, CNI_IFNAME: 'eth0' });
    expect(request).toMatchObject({ prevResult: { cniVersion: '1.1.0' }, runtimeConfig: { ports: [80] } });
    expect(recorded()).toBeUndefined();
    await deletePod(runner, KEY, NETNS);
    expect(deleted()).toHaveLength(3);
  });

  test('needs no configuration of today', async () => {
    const later = makeRunner(chain, { network: 'gone' });
    await deletePod(later, KEY, NETNS);
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
  });

  test('finds plugins where ADD found them', async () => {
    const later = makeRunner(
      chain,
      {},
      { runtime: { ...chain.runtime, pluginDirs: [], cacheDir: '/nowhere' } },
    );
    await deletePod(later, KEY, NETNS);
    expect(deleted()).toHaveLength(3);
    expect(chain.calls().at(-1)?.request.prevResult).toBeDefined();
  });

  test('goes on after failures, tells all, and keeps on record what is left', async () => {
    chain.rescript('three', { ReportError: 'busy', ReportErrorCode: 101 });
    chain.rescript('one', { ReportError: 'stuck', ReportErrorCode: 102 });
    await expect(deletePod(runner, KEY, NETNS)).rejects.toMatchObject({
      code: 101,
      message: 'Cannot delete the networks of container "c1": 2 steps failed',
      details: expect.stringMatching(/busy.*stuck/),
    });
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(recorded()).toEqual(['one', 'three']);
    chain.rescript('one', {});
    await expect(deletePod(runner, KEY, NETNS)).rejects.toMatchObject({ code: 101, message: 'busy' });
    expect(recorded()).toEqual(['three']);
    chain.rescript('three', {});
    await deletePod(runner, KEY, NETNS);
    expect(recorded()).toBeUndefined();
  });

  test('works without the namespace, and leaves alone another one at the same path', async () => {
    await deletePod(runner, KEY, '/proc/self/ns/uts');
    expect(
      chain
        .calls()
        .slice(3)
        .map(({ env }) => env.CNI_NETNS),
    ).toEqual(['', '', '']);
    expect(runner.warnings).toEqual(['"/proc/self/ns/uts" is not the namespace that ADD was for any more']);
  });

  test.each([
    ['lost', () => fs.rmSync(file())],
    ['torn', () => fs.writeFileSync(file(), fs.readFileSync(file(), 'utf8').slice(0, 50))],
    ['of another kind', () => fs.writeFileSync(file(), '{"kind":"other"}')],
  ])('the result cache stands in for a record that is %s', async (_, damage) => {
    damage();
    await deletePod(runner, KEY, NETNS);
    expect(deleted().sort()).toEqual(['DEL one', 'DEL three', 'DEL two']);
    expect(fs.existsSync(file())).toBe(false);
  });

  test('a record is enough without the result cache', async () => {
    for (const [name, ifname] of [
      ['one', 'eth0'],
      ['two', 'net1'],
      ['three', 'net2'],
    ] as const) {
      removeAttachment(chain.runtime.cacheDir, { network: name, containerId: 'c1', ifname });
    }
    await deletePod(runner, KEY, NETNS);
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(chain.calls().at(-1)?.request).toMatchObject({ runtimeConfig: { ports: [80] } });
  });

  test('an interface of the container that another record names stays', async () => {
    await addPod(makeRunner(chain, { delegates: [network('other')] }), makePod({ ifname: 'eth1' }));
    fs.rmSync(file());
    await deletePod(runner, KEY, NETNS);
    expect(chain.order().slice(4).sort()).toEqual(['DEL one', 'DEL three', 'DEL two']);
  });
});
