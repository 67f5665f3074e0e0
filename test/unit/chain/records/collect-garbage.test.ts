// Does GC act on what was there when it began, however long its own work takes?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs, { readdirSync } from 'node:fs';
import path from 'node:path';
import { noteGeneration } from '../../../../src/attachments/generation.ts';
import { listAttachments } from '../../../../src/attachments/store.ts';
import { collectGarbage, type GcScope, planGarbage } from '../../../../src/chain/records/collect-garbage.ts';
import { repairOne } from '../../../../src/chain/records/repair.ts';
import { addNetwork, deleteNetwork } from '../../../../src/chain/run/run.ts';
import type { HeldAttachment } from '../../../../src/chain/run/runtime.ts';
import type { Exec } from '../../../../src/chain/run/segment.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import type { CniError } from '../../../../src/cni/errors.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import { bootId } from '../../../../src/files/process-stat.ts';
import { recordsIn } from '../../../helpers/journal.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
let runtime: NoopChain['runtime'] & { stateDir: string };
let calls: { readonly command: string; readonly id: string; readonly valid: unknown }[];
beforeEach(() => {
  chain = makeNoopChain();
  const env = { ...process.env, CATENA_RUN_DIR: path.join(chain.dir, 'run') };
  runtime = { ...chain.runtime, env, stateDir: path.join(chain.dir, 'state') };
  calls = [];
});
afterEach(() => chain.dispose());

const list = () => listOf('1.1.0', [chain.noop('one'), chain.noop('two')]);
const of = (containerId: string) => ({ ...ATTACHMENT, containerId });
const key = (containerID: string) => ({ containerID, ifname: 'eth0' });
/** On the same state, but without taking turns with what GC does: as another process would. */
const other = () => ({ ...runtime, exec: stub(), cacheDir: `${runtime.cacheDir}/.` });
const listed = () => calls.filter(({ command }) => command === 'GC').map(({ valid }) => valid);
const named = (command: string, id: string) =>
  calls.filter(call => call.command === command && call.id === id).length;

/** Plugins that succeed; the first one that is called with the verb takes as long as the work. */
function stub(verb?: string, work?: () => Promise<unknown>): Exec {
  let begun = false;
  return async ({ env, request }) => {
    const { CNI_COMMAND: command = '', CNI_CONTAINERID: id = '' } = env;
    calls.push({ command, id, valid: JSON.parse(request)['cni.dev/valid-attachments'] });
    if (command === verb && !begun) {
      begun = true;
      await work?.();
    }
    const ips = [{ address: `10.0.0.${calls.length}/24` }];
    const stdout = command === 'ADD' ? JSON.stringify({ cniVersion: '1.1.0', ips }) : '';
    return { stdout };
  };
}

const add = (id: string) => addNetwork(list(), of(id), other());

test('GC passes attachments added while stale ones are deleted to every plugin as valid', async () => {
  for (const id of ['c1', 'c2']) await add(id);
  const exec = stub('DEL', () => add('c3'));
  await collectGarbage(list(), { valid: [key('c2')] }, { ...runtime, exec });
  expect(listed()).toEqual([
    [key('c2'), key('c3')],
    [key('c2'), key('c3')],
  ]);
  expect(named('DEL', 'c3')).toBe(0);
});

test('GC passes attachments added while a plugin collects to the plugins after it', async () => {
  await add('c1');
  const exec = stub('GC', () => add('c3'));
  await collectGarbage(list(), { valid: [key('c1')] }, { ...runtime, exec });
  expect(listed()).toEqual([[key('c1')], [key('c1'), key('c3')]]);
});

test.each([true, false])(
  'GC leaves a stale attachment alone that was deleted and added again (journal: %p)',
  async hasJournal => {
    const stateDir = hasJournal ? runtime.stateDir : undefined;
    const others = () => ({ ...other(), stateDir });
    for (const id of ['c1', 'c2']) await addNetwork(list(), of(id), others());
    const exec = stub('DEL', async () => {
      await deleteNetwork(list(), of('c2'), others());
      await addNetwork(list(), of('c2'), others());
    });
    await collectGarbage(list(), { valid: [] }, { ...runtime, stateDir, exec });
    expect(named('DEL', 'c1')).toBe(2);
    // By the other process alone.
    expect(named('DEL', 'c2')).toBe(2);
    expect(listed()).toEqual([[key('c2')], [key('c2')]]);
  },
);

test('GC leaves a stale attachment alone that another runtime has begun to add again', async () => {
  for (const id of ['c1', 'c2']) await add(id);
  const exec = stub('DEL', async () => {
    const again = { network: list().name, containerId: 'c2', ifname: 'eth0' };
    noteGeneration(runDir(runtime.env), again, { renew: true, boot: bootId(runtime.env) });
  });
  await collectGarbage(list(), { valid: [] }, { ...runtime, exec });
  expect([named('DEL', 'c1'), named('DEL', 'c2')]).toEqual([2, 0]);
});

test('GC requests a deferred list of valid attachments after it has read the records', async () => {
  await add('c1');
  let asked = 0;
  const valid = () => {
    asked += 1;
    return [key('c1')];
  };
  await collectGarbage(list(), { valid }, { ...runtime, exec: stub() });
  expect(asked).toBeGreaterThan(1);
  expect(named('DEL', 'c1')).toBe(0);
});

test('GC does not count the remains of a failed DEL as valid, even if they look in use', async () => {
  await add('c1');
  const traces = ['lease of 10.0.0.2'];
  const look = () => [{ containerId: 'c1', ifname: 'eth0', isNamed: true, traces, inUse: 'it is new' }];
  await collectGarbage(list(), { valid: [], look }, { ...runtime, exec: stub() });
  expect(named('DEL', 'c1')).toBe(2);
  expect(listed()).toEqual([[], []]);
});

test('a stale attachment that another runtime has made again gets DEL, and its entry goes', async () => {
  await add('c1');
  await addNetwork(list(), of('c1'), { ...other(), stateDir: undefined });
  const [id, network] = ['c1', list().name];
  const results = path.join(runtime.cacheDir, 'results');
  expect(readdirSync(results)).toEqual([`${network}-${id}-eth0`]);
  await collectGarbage(list(), { valid: [] }, { ...runtime, exec: stub() });
  expect(named('DEL', id)).toBe(2);
  expect(readdirSync(results)).toEqual([]);
  expect(recordsIn(runtime.stateDir)).toEqual([]);
});

test('what another runtime made is not repaired during its DEL', async () => {
  await addNetwork(list(), of('c1'), { ...other(), stateDir: undefined });
  const [known] = listAttachments({ cacheDir: runtime.cacheDir }).attachments;
  if (known === undefined) throw new Error('the attachment is not listed');
  const skipped: string[] = [];
  const exec = stub('DEL', async () => {
    const { why = '' } = await repairOne(known, {}, other());
    skipped.push(why);
  });
  await collectGarbage(list(), { valid: [] }, { ...runtime, exec });
  expect(skipped).toContain(`process ${process.pid} is working on it`);
  expect(recordsIn(runtime.stateDir)).toEqual([]);
});

describe('what is garbage', () => {
  let chain: NoopChain;
  beforeEach(() => {
    chain = makeNoopChain();
  });
  afterEach(() => chain.dispose());

  const results = () => path.join(chain.runtime.cacheDir, 'results');
  const files = () => fs.readdirSync(results()).sort();
  const threePlugins = (cniVersion = '1.1.0', more: JsonObject = {}) =>
    listOf(cniVersion, [chain.noop('one'), chain.noop('two'), chain.noop('three')], more);
  const add = (containerId: string, list = threePlugins()) =>
    addNetwork(list, { ...ATTACHMENT, containerId }, chain.runtime);
  const keep = (...ids: string[]): GcScope => ({
    valid: ids.map(containerID => ({ containerID, ifname: 'eth0' })),
  });

  describe('collectGarbage()', () => {
    test('deletes stale attachments and has every plugin collect', async () => {
      for (const id of ['c1', 'c2', 'c3']) await add(id);
      const { valid } = keep('c2') as { valid: unknown };
      const done = await collectGarbage(threePlugins(), keep('c2'), chain.runtime);
      const calls = chain.calls().slice(9);
      expect(calls.map(({ command, env }) => [command, env.CNI_CONTAINERID])).toEqual([
        ...['c1', 'c1', 'c1', 'c3', 'c3', 'c3'].map(id => ['DEL', id]),
        ...[1, 2, 3].map(() => ['GC', '']),
      ]);
      const gc = calls.slice(6);
      expect(gc.map(({ request }) => request.label)).toEqual(['one', 'two', 'three']);
      expect(gc[0]?.request['cni.dev/valid-attachments']).toEqual(valid);
      expect(gc[0]?.request['cni.dev/attachments']).toEqual(valid);
      expect(files()).toEqual(['testnet-c2-eth0']);
      expect(done.stale.map(({ containerId }) => containerId)).toEqual(['c1', 'c3']);
    });

    test('keeps attachments added since GC was requested, even if the list does not name them', async () => {
      const stateDir = path.join(chain.runtime.cacheDir, 'state');
      const runtime = { ...chain.runtime, stateDir };
      await addNetwork(threePlugins(), ATTACHMENT, runtime);
      const since = Date.now();
      await addNetwork(threePlugins(), { ...ATTACHMENT, containerId: 'c9' }, runtime);
      const { stale, kept } = await collectGarbage(threePlugins(), { valid: [], since }, runtime);
      expect(stale.map(({ containerId }) => containerId)).toEqual(['c1']);
      expect(kept).toMatchObject([{ containerId: 'c9', why: 'it was added after GC began' }]);
      expect(files()).toEqual(['testnet-c9-eth0']);
    });

    test('keeps what another runtime attached since, of which its entry alone tells', async () => {
      await add('c1');
      await Bun.sleep(30);
      const since = Date.now();
      await add('c9');
      const { stale, kept } = await collectGarbage(threePlugins(), { valid: [], since }, chain.runtime);
      expect(stale.map(({ containerId }) => containerId)).toEqual(['c1']);
      expect(kept).toMatchObject([{ containerId: 'c9', why: 'it was added after GC began' }]);
      expect(files()).toEqual(['testnet-c9-eth0']);
    });

    test('lists an entry that names what no container can be called, beside the others', async () => {
      await add('c1');
      const entry = fs.readFileSync(path.join(results(), 'testnet-c1-eth0'), 'utf8');
      fs.writeFileSync(path.join(results(), 'testnet-odd-eth0'), entry.replace('"c1"', '"a/b"'));
      const { stale } = planGarbage(threePlugins(), { valid: [] }, chain.runtime);
      expect(stale.map(({ containerId }) => containerId)).toEqual(['a/b', 'c1']);
    });

    test('keeps what another runner made, if it is asked for those of one', async () => {
      const runtime = { ...chain.runtime, stateDir: path.join(chain.runtime.cacheDir, 'state') };
      await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, owner: 'ours' });
      await addNetwork(threePlugins(), { ...ATTACHMENT, containerId: 'c9' }, { ...runtime, owner: 'theirs' });
      const { stale, kept } = await collectGarbage(threePlugins(), { valid: [], owner: 'ours' }, runtime);
      expect(stale.map(({ containerId }) => containerId)).toEqual(['c1']);
      expect(kept).toMatchObject([{ containerId: 'c9', why: 'it belongs to "theirs"' }]);
    });

    test('deletes with the configuration of the ADD, not the current one', async () => {
      await add('c1');
      await collectGarbage(listOf('1.1.0', [chain.noop('other')]), keep('c2'), chain.runtime);
      expect(chain.order().slice(3)).toEqual(['DEL three', 'DEL two', 'DEL one', 'GC other']);
    });

    test('deletes everything only on request', async () => {
      await add('c1');
      await collectGarbage(threePlugins(), { all: true }, chain.runtime);
      expect(chain.calls().at(-1)?.request['cni.dev/valid-attachments']).toEqual([]);
      expect(files()).toEqual([]);
    });

    test.each<[string, unknown, string]>([
      ['nothing', {}, 'expected either the valid attachments or "all"'],
      ['an absent list', { valid: undefined }, 'expected either the valid attachments'],
      ['all: false', { all: false }, 'expected either the valid attachments'],
      [
        'a key with a typing mistake',
        { valid: [{ containerId: 'c1', ifname: 'eth0' }] },
        'Cannot use valid attachment {"containerId":"c1","ifname":"eth0"}',
      ],
      ['a key without interface', { valid: [{ containerID: 'c1' }] }, 'interface name is empty'],
      ['no object', { valid: [null] }, 'Cannot use valid attachment null'],
    ])('refuses %s before it touches anything', async (_, scope, message) => {
      await add('c1');
      const refused = collectGarbage(threePlugins(), scope as GcScope, chain.runtime);
      await expect(refused).rejects.toMatchObject({ code: 7, message: expect.stringContaining(message) });
      expect(chain.order()).toHaveLength(3);
    });

    test('continues after errors and joins them', async () => {
      const list = threePlugins();
      for (const id of ['c1', 'c2']) await add(id, list);
      chain.rescript('two', { ReportError: 'stuck', ReportErrorCode: 105 });
      await expect(collectGarbage(list, { all: true }, chain.runtime)).rejects.toMatchObject({
        message: expect.stringMatching(
          /^Cannot collect garbage of network "testnet": Cannot delete stale attachment "c1" "eth0".*noop GC: stuck$/,
        ),
      });
      const gcs = chain.order().filter(call => call.startsWith('GC'));
      expect(gcs).toEqual(['GC one', 'GC two', 'GC three']);
    });

    test.each([
      ['1.0.0', {}, ['DEL three', 'DEL two', 'DEL one']],
      ['1.1.0', { disableGC: true }, []],
    ])(
      '[%s] sends third-party plugins no GC before 1.1.0, and no plugin with disableGC: %j',
      async (version, more, expected) => {
        const list = threePlugins(version, more);
        await add('c1', list);
        await collectGarbage(list, { all: true }, chain.runtime);
        expect(chain.order().slice(3)).toEqual(expected);
      },
    );

    test('reports a cache that cannot be listed', async () => {
      fs.mkdirSync(chain.runtime.cacheDir);
      fs.writeFileSync(results(), '');
      await expect(collectGarbage(threePlugins(), { all: true }, chain.runtime)).rejects.toMatchObject({
        code: 5,
      });
      expect(chain.order()).toEqual([]);
    });

    test('warns of damaged records and continues', async () => {
      await add('c1');
      fs.writeFileSync(path.join(results(), 'testnet-c0-eth0'), '{"kind":"cniC');
      fs.writeFileSync(path.join(results(), 'othernet-c0-eth0'), '{"kind":"cniC');
      const warnings: CniError[] = [];
      const runtime = { ...chain.runtime, onWarning: (warning: CniError) => warnings.push(warning) };
      const { damaged } = await collectGarbage(threePlugins(), { all: true }, runtime);
      expect(warnings.map(({ message }) => message)).toEqual([
        `Cannot read cached result "${results()}/testnet-c0-eth0": it is not a JSON object`,
      ]);
      expect(damaged).toEqual(warnings);
      expect(files()).toEqual(['othernet-c0-eth0', 'testnet-c0-eth0']);
    });
  });

  test('a list before 1.1.0 has our plugins and their delegates collect, and no others', async () => {
    const delegating = { ...chain.noop('two'), ipam: { type: 'theirs' } };
    const list = listOf('1.0.0', [chain.noop('one'), delegating, chain.noop('three')]);
    const isOwn = (path: string) => path.endsWith('noop');
    const find = (type: string) => (type === 'theirs' ? '/theirs' : `${chain.runtime.pluginDirs[0]}/${type}`);
    const runtime = { ...chain.runtime, isOwn, find };
    expect(planGarbage(list, { all: true }, runtime).plugins).toEqual(['noop', 'noop']);
    await collectGarbage(list, keep('c2'), runtime);
    const calls = chain.calls();
    expect(calls.map(({ command, request }) => [command, request.label])).toEqual([
      ['GC', 'one'],
      ['GC', 'three'],
    ]);
    expect(calls.map(({ request }) => request.cniVersion)).toEqual(['1.1.0', '1.1.0']);
    expect(calls[0]?.request['cni.dev/valid-attachments']).toEqual([{ containerID: 'c2', ifname: 'eth0' }]);
  });

  describe('planGarbage()', () => {
    test('reports what would be done and does nothing', async () => {
      for (const id of ['c1', 'c2']) await add(id);
      const plan = planGarbage(threePlugins(), keep('c2', 'c9'), chain.runtime);
      expect(plan).toMatchObject({
        network: 'testnet',
        disabled: false,
        stale: [{ containerId: 'c1', ifname: 'eth0' }],
        kept: [{ containerId: 'c2' }],
        plugins: ['noop', 'noop', 'noop'],
        valid: [{ containerID: 'c2' }, { containerID: 'c9' }],
        damaged: [],
      });
      expect(chain.order()).toHaveLength(6);
      expect(files()).toHaveLength(2);
    });

    test('includes no third-party plugins before 1.1.0, and none at all with disableGC', async () => {
      await add('c1');
      expect(planGarbage(threePlugins('1.0.0'), { all: true }, chain.runtime)).toMatchObject({
        stale: [{ containerId: 'c1' }],
        plugins: [],
      });
      const disabled = threePlugins('1.1.0', { disableGC: 'true' });
      expect(planGarbage(disabled, { all: true }, chain.runtime)).toMatchObject({
        disabled: true,
        stale: [],
        plugins: [],
      });
    });
  });

  describe('planGarbage() with an examination of the node', () => {
    const traced = (containerId: string, more: Partial<HeldAttachment> = {}): HeldAttachment => ({
      containerId,
      ifname: 'eth0',
      isNamed: true,
      traces: [`something of ${containerId}`],
      inUse: undefined,
      ...more,
    });
    const plan = (scope: GcScope, ...found: HeldAttachment[]) =>
      planGarbage(threePlugins(), { ...scope, look: () => found }, chain.runtime);

    test('deletes attachments without a record that are not in use, also before 1.1.0', async () => {
      await add('c1');
      const { stale, kept } = plan(keep('c1'), traced('c1'), traced('lost'));
      expect(stale).toMatchObject([
        {
          containerId: 'lost',
          why: 'it has no record here and is unused',
          traces: ['something of lost'],
        },
      ]);
      expect(kept).toMatchObject([{ containerId: 'c1', traces: ['something of c1'] }]);
      const old = threePlugins('1.0.0');
      await collectGarbage(old, { ...keep('c1'), look: () => [traced('lost')] }, chain.runtime);
      const calls = chain.calls().slice(3);
      expect(calls.map(({ command, env, request }) => [command, env.CNI_CONTAINERID, request.label])).toEqual(
        ['three', 'two', 'one'].map(label => ['DEL', 'lost', label]),
      );
    });

    test('keeps attachments that may be in use, and passes them to the plugins', () => {
      const theirs = traced('theirs', { inUse: 'an interface has its address' });
      expect(plan({ all: true }, theirs)).toMatchObject({
        stale: [],
        kept: [{ containerId: 'theirs', why: expect.stringContaining('an interface has its address') }],
        valid: [{ containerID: 'theirs', ifname: 'eth0' }],
      });
      expect(plan({ all: true, unrecorded: true }, theirs)).toMatchObject({
        stale: [
          { containerId: 'theirs', why: expect.stringContaining('all unrecorded attachments are deleted') },
        ],
        kept: [],
        valid: [],
      });
    });

    test('leaves valid and recorded attachments to their owners', async () => {
      await add('c1');
      const used = { inUse: 'it is' };
      expect(plan({ all: true }, traced('c1', used)).stale).toMatchObject([{ containerId: 'c1' }]);
      expect(plan(keep('c2', 'c1'), traced('c2')).stale).toEqual([]);
    });

    test('collects nothing while an attachment in use cannot be named to the plugins', () => {
      const digest = traced('~0123', { isNamed: false });
      expect(plan({ all: true }, digest)).toMatchObject({
        stale: [],
        unnamed: [digest],
        plugins: Array(3).fill('noop'),
      });
      expect(plan({ all: true }, { ...digest, inUse: 'it is' })).toMatchObject({ stale: [], plugins: [] });
    });
  });
});
