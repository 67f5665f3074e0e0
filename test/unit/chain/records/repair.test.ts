import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { noteGeneration } from '../../../../src/attachments/generation.ts';
import { readAttachment } from '../../../../src/attachments/store.ts';
import { type AttachmentCondition, type RepairScope, repair } from '../../../../src/chain/records/repair.ts';
import { addNetwork, deleteNetwork } from '../../../../src/chain/run/run.ts';
import type { Runtime } from '../../../../src/chain/run/runtime.ts';
import { keyOf } from '../../../../src/cni/attachment.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import { mustClaim, withoutOurs } from '../../../helpers/journal.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
let runtime: Runtime & { stateDir: string; cacheDir: string };
beforeEach(() => {
  chain = makeNoopChain();
  runtime = { ...chain.runtime, stateDir: path.join(chain.dir, 'state') };
});
afterEach(() => chain.dispose());

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const LABELS = ['one', 'two', 'three'];
const ips = (address: string): JsonObject => ({ cniVersion: '1.1.0', ips: [{ address }] });
const threePlugins = (cniVersion = '1.1.0', more: JsonObject = {}) =>
  listOf(
    cniVersion,
    LABELS.map((label, i) => chain.noop(label, { ReportResult: ips(`10.1.0.${i + 1}/24`) })),
    more,
  );
const record = () => readAttachment({ journals: [runtime.stateDir] }, ID);

/** A namespace with the note of an ADD: without one, a repair waits for as long as a DEL may take. */
function noted(name: string): string {
  const env = { CATENA_RUN_DIR: path.join(chain.dir, 'run') };
  runtime = { ...runtime, env: { ...process.env, ...env } };
  noteGeneration(runDir(env), ID, { renew: true, boot: 'this' });
  const file = path.join(chain.dir, name);
  fs.writeFileSync(file, '');
  return file;
}

async function onlyOne(scope: RepairScope = {}): Promise<AttachmentCondition> {
  const { attachments } = await repair(scope, runtime);
  const [found, ...more] = attachments;
  expect(more).toEqual([]);
  if (found === undefined) throw new Error('no attachment was found');
  return found;
}
const states = ({ plugins }: AttachmentCondition) => plugins.map(({ state }) => state);

describe('repair()', () => {
  test('calls every plugin once when all is well', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    expect(await onlyOne()).toMatchObject({ ...ID, state: 'sound' });
    expect(chain.order().slice(3)).toEqual(LABELS.map(label => `CHECK ${label}`));
    expect(chain.calls().at(-1)?.request.prevResult).toEqual(ips('10.1.0.3/24'));
    expect(record()).toMatchObject({ phase: 'attached', runners: [] });
  });

  test('calls a plugin that objects again for repair, and continues with the next', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    chain.rescript('two', { ReportError: 'a rule is gone', ExceptWith: 'CATENA_REPAIR' });
    const found = await onlyOne();
    expect(found.state).toBe('mended');
    expect(found.plugins[1]).toEqual({ type: 'noop', index: 1, state: 'mended', problem: 'a rule is gone' });
    expect(chain.order().slice(3)).toEqual(['CHECK one', 'CHECK two', 'CHECK two', 'CHECK three']);
  });

  test('reports what stays broken, and runs no ADD', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    chain.rescript('two', { ReportError: 'a rule is gone' });
    const found = await onlyOne();
    expect(states(found)).toEqual(['sound', 'broken', 'sound']);
    expect(found.plugins[1]?.error).toMatchObject({
      code: 100,
      message: 'a rule is gone',
      plugin: { index: 1 },
    });
    expect(chain.order().slice(3)).not.toContain('ADD two');
  });

  test('does not call broken what it was interrupted in, and says what it has not looked at', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    const ending = new AbortController();
    const within = { ...runtime, signal: ending.signal, onPlugin: () => ending.abort() };
    const why = 'the repair was interrupted';
    expect((await repair({}, within)).attachments).toMatchObject([
      { ...ID, state: 'skipped', why, plugins: [{ index: 0, state: 'sound' }] },
    ]);
    const { attachments } = await repair({}, { ...runtime, signal: AbortSignal.abort() });
    expect(attachments).toEqual([{ ...ID, state: 'skipped', why, plugins: [] }]);
  });

  test('repairs what another runtime made, of which no journal has a record, and not those that it is told to leave', async () => {
    const netns = noted('netns');
    await addNetwork(threePlugins(), { ...ATTACHMENT, netns }, runtime);
    withoutOurs(record()?.file ?? '');
    chain.rescript('two', { ReportError: 'a rule is gone', ExceptWith: 'CATENA_REPAIR' });
    expect(states(await onlyOne({ dryRun: true }))).toEqual(['sound', 'broken', 'sound']);
    expect(await onlyOne()).toMatchObject({ ...ID, state: 'mended' });
    expect((await repair({ inParts: new Set([keyOf(ID)]) }, runtime)).attachments).toEqual([]);
    expect(record()).toBeUndefined();
  });

  test('of a container that its runtime has started again repairs what is there now, and drops the record of before', async () => {
    const before = noted('before');
    await addNetwork(threePlugins(), { ...ATTACHMENT, netns: before }, runtime);
    fs.rmSync(before);
    const netns = noted('netns');
    await addNetwork(
      threePlugins(),
      { ...ATTACHMENT, netns },
      { ...runtime, stateDir: `${chain.dir}/other` },
    );
    withoutOurs(path.join(runtime.cacheDir, 'results/testnet-c1-eth0'));
    chain.rescript('two', { ReportError: 'a rule is gone', ExceptWith: 'CATENA_REPAIR' });
    expect(await onlyOne()).toMatchObject({ ...ID, state: 'mended' });
    expect(record()).toBeUndefined();
    expect(chain.calls().at(-1)?.env.CNI_NETNS).toBe(netns);
  });

  test('does not repair the plugins after a first one whose device is lost', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    chain.rescript('one', { ReportError: 'the interface is gone' });
    chain.rescript('two', { ReportError: 'a rule is gone', ExceptWith: 'CATENA_REPAIR' });
    const found = await onlyOne({ foreign: true });
    expect(states(found)).toEqual(['broken', 'broken', 'sound']);
    expect(chain.order().slice(3)).toEqual(['CHECK one', 'CHECK one', 'CHECK two', 'CHECK three']);
  });

  test('runs ADD of chained plugins again on request, with the result of the last plugin', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    chain.rescript('two', { ReportError: 'gone', On: ['CHECK'] });
    const found = await onlyOne({ foreign: true });
    expect(states(found)).toEqual(['sound', 'broken', 'sound']);
    const adds = chain
      .calls()
      .slice(3)
      .filter(({ command }) => command === 'ADD');
    expect(adds.map(({ request }) => [request.label, request.prevResult])).toEqual([
      ['two', ips('10.1.0.3/24')],
    ] as never);
  });

  test('only checks in a dry run', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    const before = fs.readFileSync(record()?.file ?? '', 'utf8');
    chain.rescript('two', { ReportError: 'a rule is gone', ExceptWith: 'CATENA_REPAIR' });
    expect((await onlyOne({ dryRun: true })).state).toBe('broken');
    expect(chain.order().slice(3)).toEqual(LABELS.map(label => `CHECK ${label}`));
    expect(fs.readFileSync(record()?.file ?? '', 'utf8')).toBe(before);
  });

  test.each([
    ['a list that wants no CHECK', '1.1.0', { disableCheck: true }, 'its list sets "disableCheck"'],
    ['a list from before CHECK', '0.3.1', {}, 'its list has version 0.3.1, which has no CHECK'],
  ])('leaves alone %s', async (_, version, more, why) => {
    await addNetwork(threePlugins(version, more), ATTACHMENT, runtime);
    expect(await onlyOne()).toMatchObject({ state: 'skipped', why: expect.stringContaining(why) });
    expect(chain.order()).toHaveLength(3);
  });

  test('leaves attachments alone without a namespace, or with the namespace of another container', async () => {
    const netns = path.join(chain.dir, 'netns');
    fs.writeFileSync(netns, '');
    await addNetwork(threePlugins(), { ...ATTACHMENT, netns }, runtime);
    fs.writeFileSync(`${netns}.other`, '');
    fs.renameSync(`${netns}.other`, netns);
    expect((await onlyOne()).why).toBe(`"${netns}" is no longer the namespace of its ADD; DEL deletes it`);
    fs.rmSync(netns);
    expect((await onlyOne()).why).toBe(`its namespace "${netns}" no longer exists; DEL deletes it`);
  });

  test('leaves attachments alone that another process works on, and locks those it repairs', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    const claim = mustClaim(runtime.stateDir, ID, 'repair');
    expect((await onlyOne()).why).toBe(`process ${process.pid} is working on it`);
    const deleting = deleteNetwork(threePlugins(), ATTACHMENT, runtime);
    await Bun.sleep(150);
    expect(chain.order()).toHaveLength(3);
    claim.release();
    await deleting;
    expect(chain.order().slice(3)).toEqual(['DEL three', 'DEL two', 'DEL one']);
  });

  test('first undoes unsettled attachments, and says why', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, {
      ...runtime,
      env: { ...process.env, CATENA_BOOT_ID: 'first' },
    });
    const seen = await repair({ dryRun: true }, runtime);
    const recovery = { ...ID, why: 'it is from an earlier boot of the machine' };
    expect(seen).toEqual({ recovered: [recovery], attachments: [], damaged: [] });
    expect(await repair({}, runtime)).toEqual(seen);
    expect(chain.order().slice(3)).toEqual(['DEL three', 'DEL two', 'DEL one']);
  });

  test('is limited to one network, and names damaged records', async () => {
    await addNetwork(threePlugins(), ATTACHMENT, runtime);
    expect((await repair({ network: 'another' }, runtime)).attachments).toEqual([]);
    fs.writeFileSync(record()?.file ?? '', '');
    expect((await repair({}, runtime)).damaged).toHaveLength(1);
  });
});
