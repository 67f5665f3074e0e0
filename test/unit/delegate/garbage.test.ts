import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { writeEntry } from '../../../src/attachments/entries.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import { collectPods } from '../../../src/delegate/garbage.ts';
import { listPods } from '../../../src/delegate/record.ts';
import { makePod, makeRunner, type TestRunner } from '../../helpers/delegates.ts';
import { keptWith } from '../../helpers/kept.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

let chain: NoopChain;
let runner: TestRunner;
beforeEach(async () => {
  chain = makeNoopChain();
  runner = makeRunner(chain, { delegates: [network('one'), network('two')] });
  for (const containerId of ['c1', 'c2']) await addPod(runner, makePod({ containerId }));
});
afterEach(() => chain.dispose());

const network = (name: string, more: JsonObject = {}): JsonObject => ({
  cniVersion: '1.1.0',
  name,
  plugins: [chain.noop(name)],
  ...more,
});
const key = (containerID: string, ifname = 'eth0') => ({ containerID, ifname });
const calls = () => chain.calls().slice(4);
const order = () =>
  calls().map(({ command, env, request }) => `${command} ${request.label} ${env.CNI_CONTAINERID}`.trim());
const validOf = (label: string) =>
  calls().find(({ command, request }) => command === 'GC' && request.label === label)?.request[
    'cni.dev/valid-attachments'
  ];

describe('collectPods()', () => {
  test('deletes pods that the runtime does not list, and passes the remaining ones to every network', async () => {
    await collectPods(runner, keptWith([key('c2')]));
    expect(order()).toEqual(['DEL two c1', 'DEL one c1', 'GC one', 'GC two']);
    expect(validOf('one')).toEqual([key('c2')]);
    expect(validOf('two')).toEqual([key('c2', 'net1')]);
    expect(listPods(runner.podsDir).pods.map(({ record }) => record.containerId)).toEqual(['c2']);
  });

  test.each([
    ['lists by then', undefined],
    ['has attached again by then', 'op'],
    ['attached in another network namespace', 'hostCookie'],
  ])('keeps a pod that its runtime %s', async (_, member) => {
    const file = path.join(runner.podsDir, 'results/outer-c2-eth0');
    const rewrite = () => {
      const { catena, ...entry } = JSON.parse(fs.readFileSync(file, 'utf8'));
      fs.writeFileSync(file, JSON.stringify({ ...entry, catena: { ...catena, [String(member)]: '1' } }));
    };
    if (member === 'hostCookie') rewrite();
    let looks = 0;
    const has = ({ containerId }: { readonly containerId: string }) => {
      // The second look is with the lock of the first pod, before that of the other is taken.
      if (containerId === 'c1' && ++looks === 2 && member === 'op') rewrite();
      return containerId === 'c2' && looks === 2 && member === undefined;
    };
    await collectPods(runner, { has });
    expect(order().filter(call => call.startsWith('DEL'))).toEqual(['DEL two c1', 'DEL one c1']);
    expect(listPods(runner.podsDir).pods.map(({ record }) => record.containerId)).toEqual(['c2']);
  });

  test('keeps foreign records, and attachments that a runtime made itself', async () => {
    const others = { ...runner, options: { ...runner.options, network: 'others' } };
    await addPod(others, makePod({ containerId: 'c3' }));
    const foreign = {
      network: 'one',
      containerId: 'c4',
      ifname: 'eth0',
      netns: '',
      args: [],
      capabilityArgs: {},
    };
    writeEntry(runner.callerCacheDir, { ...foreign, source: '{}', result: {} });
    await collectPods(runner, keptWith([key('c1'), key('c2')]));
    expect(order().filter(call => call.startsWith('DEL'))).toEqual([]);
    expect(validOf('one')).toEqual([key('c3'), key('c1'), key('c2'), key('c4')]);
  });

  test('keeps what multus attached as long as the runtime lists the pod, and deletes it then', async () => {
    const at = { network: 'one', containerId: 'c4', ifname: 'eth0', netns: '', args: [], capabilityArgs: {} };
    const source = JSON.stringify(network('one'));
    writeEntry(runner.runtime.cacheDir, { ...at, source, result: { cniVersion: '1.1.0' } });
    writeEntry(runner.callerCacheDir, { ...at, network: 'outer', source: '{}', result: {} });
    const pods = [key('c1'), key('c2')];
    await collectPods(runner, keptWith([...pods, key('c4')]));
    expect(order().filter(call => call.startsWith('DEL'))).toEqual([]);
    expect(validOf('one')).toEqual([...pods, key('c4')]);
    await collectPods(runner, keptWith(pods));
    expect(order().filter(call => call.startsWith('DEL'))).toEqual(['DEL one c4']);
  });

  test('reaches networks that only a record still names', async () => {
    await collectPods(makeRunner(chain, { delegates: [network('three')] }), keptWith([key('c1'), key('c2')]));
    expect(order()).toEqual(['GC three', 'GC one', 'GC two']);
  });

  test('continues after a failure, and keeps what could not be deleted', async () => {
    chain.rescript('two', { ReportError: 'busy', ReportErrorCode: 101 });
    await expect(collectPods(runner, keptWith([]))).rejects.toMatchObject({ code: 101 });
    // What is still there at the end, networks retry on their own.
    const deleted = ['DEL two c1', 'DEL one c1', 'DEL two c2', 'DEL one c2', 'DEL two c1', 'DEL two c2'];
    expect(order().filter(call => call.startsWith('DEL'))).toEqual(deleted);
    expect(listPods(runner.podsDir).pods.map(({ record }) => record.phase)).toEqual(['failed', 'failed']);
    expect(validOf('two')).toEqual([key('c1', 'net1'), key('c2', 'net1')]);
  });

  test('collects nothing while a record is damaged, and names it', async () => {
    const file = path.join(runner.podsDir, 'results/outer-c1-eth0');
    fs.writeFileSync(file, '{');
    await expect(collectPods(runner, keptWith([key('c1')]))).rejects.toMatchObject({
      code: 6,
      message: expect.stringContaining(file),
    });
    expect(order()).toEqual(['DEL two c2', 'DEL one c2']);
  });
});
