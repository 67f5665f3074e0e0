// Does GC act on what was there when it began, however long its own work takes?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { listAttachments } from '../../../../src/attachments/entries.ts';
import { noteGeneration } from '../../../../src/attachments/generation.ts';
import { listRecords } from '../../../../src/attachments/store.ts';
import { collectGarbage } from '../../../../src/chain/records/collect-garbage.ts';
import { repairOne } from '../../../../src/chain/records/repair.ts';
import { addNetwork, deleteNetwork } from '../../../../src/chain/run/run.ts';
import type { Exec } from '../../../../src/chain/run/segment.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import { bootId } from '../../../../src/files/process-stat.ts';
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
  expect(listRecords(runtime.stateDir).records).toEqual([]);
});

test('what another runtime made is not repaired during its DEL', async () => {
  await addNetwork(list(), of('c1'), { ...other(), stateDir: undefined });
  const [known] = listAttachments(runtime.cacheDir).attachments;
  if (known === undefined) throw new Error('the attachment is not listed');
  const skipped: string[] = [];
  const exec = stub('DEL', async () => {
    const { why = '' } = await repairOne({ known, record: undefined, stateDir: undefined }, {}, other());
    skipped.push(why);
  });
  await collectGarbage(list(), { valid: [] }, { ...runtime, exec });
  expect(skipped).toContain(`process ${process.pid} is working on it`);
  expect(listRecords(runtime.stateDir).records).toEqual([]);
});
