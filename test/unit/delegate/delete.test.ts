import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { listGenerations, noteGeneration } from '../../../src/attachments/generation.ts';
import { readAttachment } from '../../../src/attachments/store.ts';
import type { ChainRuntime } from '../../../src/chain/run/runtime.ts';
import { runDir } from '../../../src/cni/directories.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import { deletePod, recoverPods } from '../../../src/delegate/delete.ts';
import { KEY, makePod, makeRunner, runtimeOf, type TestRunner } from '../../helpers/delegates.ts';
import { recordsIn, withoutOurs } from '../../helpers/journal.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

const NETNS = '/proc/self/ns/net';
const SHARED = { isSharedWithMultus: true };
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
const recorded = () => readAttachment({ journals: [runner.podsDir] }, KEY);
const file = () => path.join(runner.podsDir, 'results/outer-c1-eth0');

/** Changes the list of networks on record. */
function rewrite(edit: (source: string) => string): void {
  const entry = JSON.parse(fs.readFileSync(file(), 'utf8'));
  const config = Buffer.from(edit(Buffer.from(entry.config, 'base64').toString())).toString('base64');
  fs.writeFileSync(file(), JSON.stringify({ ...entry, config }));
}

describe('deletePod()', () => {
  test('deletes in reverse order with the configuration of the ADD, and the record with the last network', async () => {
    await deletePod(runner, KEY, NETNS);
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
    const { env, request } = chain.calls().at(-1) ?? {};
    expect(env).toMatchObject({ CNI_ARGS: 'A=1', CNI_NETNS: NETNS, CNI_IFNAME: 'eth0' });
    expect(request).toMatchObject({ prevResult: { cniVersion: '1.1.0' }, runtimeConfig: { ports: [80] } });
    expect(recorded()).toBeUndefined();
    await deletePod(runner, KEY, NETNS);
    expect(deleted()).toHaveLength(3);
  });

  test('does not need the current configuration', async () => {
    const later = makeRunner(chain, { network: 'gone' });
    await deletePod(later, KEY, NETNS);
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
  });

  test('finds plugins where ADD found them', async () => {
    const later = makeRunner(
      chain,
      {},
      { runtime: { ...runtimeOf(chain), pluginDirs: [], cacheDir: '/nowhere', stateDir: '/nowhere' } },
    );
    await deletePod(later, KEY, NETNS);
    expect(deleted()).toHaveLength(3);
    expect(chain.calls().at(-1)?.request.prevResult).toBeDefined();
  });

  test('continues after failures, reports all, and keeps on record what is left', async () => {
    chain.rescript('three', { ReportError: 'busy', ReportErrorCode: 101 });
    chain.rescript('one', { ReportError: 'stuck', ReportErrorCode: 102 });
    await expect(deletePod(runner, KEY, NETNS)).rejects.toMatchObject({
      code: 101,
      message: expect.stringMatching(/^Cannot delete the networks of container "c1": .*busy.*stuck/),
    });
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(recorded()).toMatchObject({
      phase: 'failed',
      attempts: 1,
      lastErrors: [{ code: 101 }, { code: 102 }],
    });
    chain.rescript('one', {});
    await expect(deletePod(runner, KEY, NETNS)).rejects.toMatchObject({ code: 101, message: 'busy' });
    expect(deleted().slice(3)).toEqual(['DEL three', 'DEL one']);
    expect(recorded()).toMatchObject({ phase: 'failed', attempts: 2 });
    chain.rescript('three', {});
    await deletePod(runner, KEY, NETNS);
    expect(recorded()).toBeUndefined();
  });

  test('waits for an ADD that is still running', async () => {
    let begun: Promise<void> | undefined;
    const onPlugin = () => {
      begun ??= deletePod(runner, KEY, NETNS);
    };
    await deletePod(runner, KEY, NETNS);
    const adding = makeRunner(
      chain,
      { delegates: [network('one'), network('two')] },
      { runtime: { ...runtimeOf(chain), onPlugin: onPlugin } },
    );
    await addPod(adding, makePod());
    await begun;
    expect(chain.order().slice(6)).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one']);
    expect(recorded()).toBeUndefined();
  });

  test('works without the namespace, and never in another one', async () => {
    const netns = path.join(chain.dir, 'netns');
    const key = { ...KEY, containerId: 'c2' };
    const given = async (path: string) => {
      fs.writeFileSync(netns, '');
      await addPod(
        makeRunner(chain, { delegates: [network('four')] }),
        makePod({ containerId: 'c2', netns }),
      );
      if (path !== netns) fs.rmSync(netns);
      await deletePod(runner, key, path);
      return chain.calls().at(-1)?.env.CNI_NETNS;
    };
    expect(await given(netns)).toBe(netns);
    expect(await given('')).toBe('');
    expect(await given('/proc/self/ns/uts')).toBe('');
    await deletePod(runner, KEY, '/proc/self/ns/uts');
    expect(chain.calls().at(-1)?.env.CNI_NETNS).toBe(NETNS);
  });

  test('of an earlier boot, there is no namespace, whatever has its path now', async () => {
    const entry = JSON.parse(fs.readFileSync(file(), 'utf8'));
    const catena = { ...entry.catena, boot: crypto.randomUUID() };
    fs.writeFileSync(file(), JSON.stringify({ ...entry, catena }));
    await deletePod(runner, KEY, NETNS);
    expect(chain.calls().at(-1)?.env).toMatchObject({ CNI_COMMAND: 'DEL', CNI_NETNS: '' });
  });

  test.each([
    ['lost', () => fs.rmSync(file())],
    ['torn', () => fs.writeFileSync(file(), fs.readFileSync(file(), 'utf8').slice(0, 50))],
    ['of another kind', () => fs.writeFileSync(file(), '{"kind":"other"}')],
    ['without networks', () => rewrite(source => source.replace('catena-delegates-1', 'other'))],
  ])('uses the result cache in place of a record that is %s', async (_, damage) => {
    damage();
    await deletePod(runner, KEY, NETNS);
    expect(deleted().sort()).toEqual(['DEL one', 'DEL three', 'DEL two']);
    expect(fs.existsSync(file())).toBe(false);
  });

  test('leaves to multus the note by which its DEL finds the pod, until no network is left', async () => {
    const shared = makeRunner(chain, { delegates: [network('one'), network('two')] }, SHARED);
    const pod = makePod({ containerId: 'c2' });
    const note = path.join(shared.runtime.cacheDir, 'c2');
    await addPod(shared, pod);
    const [first, second] = JSON.parse(fs.readFileSync(note, 'utf8'));
    expect([first.Name, first.ifnameRequest, second.ifnameRequest]).toEqual(['one', 'eth0', 'net1']);
    expect(first.ConfList.plugins).toHaveLength(1);
    expect(JSON.parse(Buffer.from(first.Bytes, 'base64').toString())).toEqual(first.ConfList);
    chain.rescript('two', { ReportError: 'busy', ReportErrorCode: 101 });
    const key = { ...KEY, containerId: 'c2' };
    await expect(deletePod(shared, key, NETNS)).rejects.toMatchObject({ code: 101 });
    expect(fs.existsSync(note)).toBe(true);
    chain.rescript('two', {});
    await deletePod(shared, key, NETNS);
    expect(fs.existsSync(note)).toBe(false);
    const unpublished = { ...shared, publish: () => Promise.reject(new Error('no pod')) };
    await expect(addPod(unpublished, pod)).rejects.toThrow('no pod');
    expect(fs.existsSync(note)).toBe(false);
  });

  test('works from the record without cache and journal of the delegates', async () => {
    fs.rmSync(chain.runtime.cacheDir, { recursive: true });
    fs.rmSync(runner.runtime.stateDir, { recursive: true });
    await deletePod(runner, KEY, NETNS);
    expect(deleted()).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(chain.calls().at(-1)?.request).toMatchObject({ runtimeConfig: { ports: [80] } });
  });

  test('keeps an interface of the container that another record names', async () => {
    await addPod(makeRunner(chain, { delegates: [network('other')] }), makePod({ ifname: 'eth1' }));
    fs.rmSync(file());
    await deletePod(runner, KEY, NETNS);
    expect(chain.order().slice(4).sort()).toEqual(['DEL one', 'DEL three', 'DEL two']);
  });
});

describe('recoverPods()', () => {
  let chain: NoopChain;
  let runner: TestRunner;
  beforeEach(async () => {
    chain = makeNoopChain();
    runner = makeRunner(chain, { delegates: ['one', 'two'].map(plainNetwork) });
    runner = { ...runner, runtime: { ...runner.runtime, env: { ...process.env, CATENA_BOOT_ID: 'first' } } };
    await addPod(runner, makePod());
  });
  afterEach(() => chain.dispose());

  const plainNetwork = (name: string): JsonObject => ({
    cniVersion: '1.1.0',
    name,
    plugins: [chain.noop(name)],
  });
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

  test('forgets a pod whose namespace is gone and whose networks another program has deleted', async () => {
    const netns = path.join(runner.podsDir, '..', 'netns');
    fs.symlinkSync('/proc/self/ns/net', netns);
    const key = { ...KEY, containerId: 'other' };
    await addPod(runner, makePod({ containerId: 'other', netns }));
    const env = { ...runner.runtime.env, CATENA_RUN_DIR: path.join(runner.podsDir, '..', 'run') };
    const forgotten = () => recoverPods(runner.podsDir, { all: true }, { ...runner.runtime, env });
    fs.rmSync(netns);
    expect(await forgotten()).toEqual([]);
    const results = path.join(runner.runtime.cacheDir, 'results');
    const left = fs
      .readdirSync(results)
      .flatMap(one => (one.includes('-other-') ? path.join(results, one) : []));
    left.forEach(withoutOurs);
    expect(await forgotten()).toEqual([]);
    for (const file of left) fs.rmSync(file);
    const calls = chain.order().length;
    fs.symlinkSync('/proc/self/ns/net', netns);
    expect(await forgotten()).toEqual([]);
    fs.rmSync(netns);
    const pod = path.join(runner.podsDir, `results/${key.network}-other-${key.ifname}`);
    const text = fs.readFileSync(pod, 'utf8');
    fs.writeFileSync(pod, text.replace(/"hostCookie":"\d+"/, '"hostCookie":"1"'));
    expect(await forgotten()).toEqual([]);
    fs.writeFileSync(pod, text);
    const runs = runDir(env);
    noteGeneration(runs, key, { renew: true, boot: 'first' });
    expect(await forgotten()).toMatchObject([{ ...key, why: expect.stringContaining('another program') }]);
    expect(listGenerations(runs, key.network)).toEqual([]);
    expect(readAttachment({ journals: [runner.podsDir] }, key)).toBeUndefined();
    expect(readAttachment({ journals: [runner.podsDir] }, KEY)).toBeDefined();
    expect(chain.order()).toHaveLength(calls);
    expect(await forgotten()).toEqual([]);
  });

  describe('recoverPods() after a reboot', () => {
    test('deletes the attachments of a pod', async () => {
      expect(await recover()).toMatchObject([{ ...KEY, why: 'it is from an earlier boot of the machine' }]);
      expect(deleted()).toEqual(['DEL two', 'DEL one']);
    });

    test('leaves a network alone that another runtime has attached to the pod again', async () => {
      attachAgain('two');
      await recover();
      expect(deleted()).toEqual(['DEL one']);
      expect(recordsIn(runner.runtime.stateDir)).toEqual([]);
      expect(readAttachment({ journals: [runner.podsDir] }, KEY)).toBeUndefined();
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
});
