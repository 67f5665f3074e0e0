import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { type KnownAttachment, readAttachment } from '../../../src/attachments/store.ts';
import { applyChange, type Change, changeNetwork, settleChange } from '../../../src/chain/change.ts';
import { isChangedSince } from '../../../src/chain/records/known-add.ts';
import { recover } from '../../../src/chain/records/recover.ts';
import { repairOne } from '../../../src/chain/records/repair.ts';
import { addNetwork, checkNetwork, deleteNetwork } from '../../../src/chain/run/run.ts';
import type { ChainRuntime } from '../../../src/chain/run/runtime.ts';
import type { ExecCall } from '../../../src/chain/run/segment.ts';
import { mustClaim } from '../../helpers/journal.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };

/** Three plugins whose part is a rate, which `two` and `three` can change. */
class Plugins {
  readonly rates: Record<string, unknown> = {};
  readonly calls: string[] = [];
  /** Calls that fail, as `do two 5`. */
  failing = new Set<string>();

  run({ path: file, env, request }: ExecCall) {
    const type = path.basename(file);
    const { rate } = JSON.parse(request);
    const mode = env.CATENA_CHANGE;
    const call = `${mode ?? env.CNI_COMMAND} ${type} ${rate}`;
    this.calls.push(call);
    if (this.failing.has(call)) return { exitCode: 1, stdout: JSON.stringify({ code: 100, msg: call }) };
    if (mode !== 'look' && env.CNI_COMMAND !== 'DEL') this.rates[type] = rate;
    const reply = { changed: RESULT, options: type === 'one' ? [] : ['rate'] };
    if (mode !== undefined) return { stdout: JSON.stringify(reply) };
    return { stdout: env.CNI_COMMAND === 'ADD' ? JSON.stringify(RESULT) : '' };
  }
}

let chain: NoopChain;
let plugins: Plugins;
let runtime: ChainRuntime & { stateDir: string };
const list = listOf('1.1.0', [
  { type: 'one', rate: 1 },
  { type: 'two', rate: 1 },
  { type: 'three', rate: 1 },
]);

beforeEach(async () => {
  chain = makeNoopChain();
  plugins = new Plugins();
  runtime = {
    pluginDirs: [],
    cacheDir: chain.runtime.cacheDir,
    stateDir: path.join(chain.dir, 'state'),
    find: type => `/somewhere/${type}`,
    isOwn: () => true,
    exec: call => plugins.run(call),
  };
  await addNetwork(list, ATTACHMENT, runtime);
  plugins.calls.length = 0;
});
afterEach(() => chain.dispose());

const toRate = (rate: number) => ({ options: { two: { rate }, three: { rate } } });
const cachedRates = () => {
  const text = fs.readFileSync(path.join(chain.runtime.cacheDir, 'results/testnet-c1-eth0'), 'utf8');
  const config = JSON.parse(Buffer.from(JSON.parse(text).config, 'base64').toString());
  return config.plugins.map(({ rate }: { rate: number }) => rate);
};

describe('changeNetwork()', () => {
  test('asks all that are concerned before it changes the first, and tells record and cache', async () => {
    expect(await changeNetwork(ID, toRate(5), runtime)).toMatchObject(RESULT);
    expect(plugins.calls).toEqual(['look two 5', 'look three 5', 'do two 5', 'do three 5']);
    expect(cachedRates()).toEqual([1, 5, 5]);
    expect(readAttachment({ journals: [runtime.stateDir] }, ID)).toMatchObject({
      change: undefined,
      isNoted: false,
    });
    await checkNetwork(list, ATTACHMENT, runtime);
    expect(plugins.calls.slice(4)).toEqual(['CHECK one 1', 'CHECK two 5', 'CHECK three 5']);
  });

  test('calls no plugin if nothing changes', async () => {
    await changeNetwork(ID, toRate(1), runtime);
    expect(plugins.calls).toEqual([]);
  });

  test('undoes what came before a failure, and the part that failed', async () => {
    plugins.failing.add('do three 5');
    await expect(changeNetwork(ID, toRate(5), runtime)).rejects.toThrow('do three 5');
    expect(plugins.calls.slice(-4)).toEqual(['do two 5', 'do three 5', 'do three 1', 'do two 1']);
    expect(plugins.rates).toEqual({ one: 1, two: 1, three: 1 });
    expect(cachedRates()).toEqual([1, 1, 1]);
  });

  test('keeps a failed undo on record; the next verb tries again', async () => {
    plugins.failing = new Set(['do three 5', 'do two 1']);
    const error = await changeNetwork(ID, toRate(5), runtime).catch(thrown => thrown);
    expect(error.details).toContain('undoing it failed too');
    // A runner that lives on, as a daemon does, is not taken for one that still works on it.
    const left = { change: { plugins: [1, 2] }, runners: [] };
    expect(readAttachment({ journals: [runtime.stateDir] }, ID)).toMatchObject(left);
    plugins.failing.clear();
    await checkNetwork(list, ATTACHMENT, runtime);
    expect(plugins.rates).toEqual({ one: 1, two: 1, three: 1 });
    expect(readAttachment({ journals: [runtime.stateDir] }, ID)?.change).toBeUndefined();
  });

  test.each([
    [
      'an option that only ADD can set',
      { options: { one: { rate: 5 } } },
      'Cannot change "rate" of plugin "one"',
    ],
    ['a capability that none declares', { capabilityArgs: { mac: 'x' } }, 'none is declared'],
  ])('refuses %s', async (_what, change, message) => {
    await expect(changeNetwork(ID, change, runtime)).rejects.toThrow(message);
    expect(plugins.calls.filter(call => call.startsWith('do'))).toEqual([]);
  });

  test('refuses foreign plugins, unknown attachments and a missing journal', async () => {
    const foreign = { ...runtime, isOwn: (file: string) => !file.endsWith('three') };
    await expect(changeNetwork(ID, toRate(5), foreign)).rejects.toThrow("is not Catena's");
    await expect(changeNetwork({ ...ID, ifname: 'eth1' }, toRate(5), runtime)).rejects.toThrow(
      'has no settings of its ADD',
    );
    await expect(changeNetwork(ID, toRate(5), { ...runtime, stateDir: undefined })).rejects.toThrow(
      'no journal',
    );
    expect(plugins.rates).toEqual({ one: 1, two: 1, three: 1 });
  });
});

describe('settleChange()', () => {
  /** As a runner leaves it that dies after its first plugin. */
  function interrupt(rate: number): void {
    const claim = mustClaim(runtime.stateDir, ID, 'change');
    const [one, ...others] = JSON.parse(claim.record.source).plugins;
    const source = JSON.stringify({
      ...JSON.parse(claim.record.source),
      plugins: [one, ...others.map((plugin: object) => ({ ...plugin, rate }))],
    });
    claim.beginChange({ to: { capabilityArgs: {}, source }, plugins: [1, 2] });
    plugins.rates.two = rate;
    claim.release();
  }

  test('goes back, last plugin first', async () => {
    interrupt(5);
    await settleChange(ID, runtime);
    expect(plugins.calls).toEqual(['do three 1', 'do two 1']);
    expect(plugins.rates).toEqual({ one: 1, two: 1, three: 1 });
  });

  test('is no reason for other ADDs of the network to wait while a process works on the attachment', async () => {
    interrupt(5);
    const held = mustClaim(runtime.stateDir, ID, 'repair');
    const warnings: string[] = [];
    const watched = { ...runtime, onWarning: ({ message }: Error) => warnings.push(message) };
    await recover({ network: ID.network }, watched);
    expect([plugins.calls, warnings]).toEqual([[], []]);
    held.release();
    await recover({ network: ID.network }, watched);
    expect(plugins.calls).toEqual(['do three 1', 'do two 1']);
  });

  test('leaves one whose namespace is gone to its DEL', async () => {
    const netns = path.join(chain.dir, 'netns');
    fs.writeFileSync(netns, '');
    await deleteNetwork(list, ATTACHMENT, runtime);
    await addNetwork(list, { ...ATTACHMENT, netns }, runtime);
    interrupt(5);
    fs.rmSync(netns);
    plugins.calls.length = 0;
    await settleChange(ID, runtime);
    expect(plugins.calls).toEqual([]);
  });

  test('goes on where it cannot go back, and both are on record then', async () => {
    interrupt(5);
    plugins.failing.add('do two 1');
    await settleChange(ID, runtime);
    expect(plugins.calls).toEqual(['do three 1', 'do two 1', 'do two 5', 'do three 5']);
    expect(plugins.rates).toEqual({ one: 1, two: 5, three: 5 });
    expect(cachedRates()).toEqual([1, 5, 5]);
  });

  test('keeps the change on record if neither is possible', async () => {
    interrupt(5);
    plugins.failing = new Set(['do two 1', 'do two 5']);
    const error = await settleChange(ID, runtime).catch(thrown => thrown);
    expect(error.details).toContain('cannot be finished either');
    expect(readAttachment({ journals: [runtime.stateDir] }, ID)?.change).toBeDefined();
  });
});

describe('repairOne(), with a record that was read before a change', () => {
  test('checks what the change has made of the attachment', async () => {
    const seen = recorded();
    await changeNetwork(ID, toRate(5), runtime);
    plugins.calls.length = 0;
    expect(await repairOne(seen, {}, runtime)).toMatchObject({ state: 'sound' });
    expect(plugins.calls).toEqual(['CHECK one 1', 'CHECK two 5', 'CHECK three 5']);
  });

  test('first undoes a change that did not end', async () => {
    const seen = recorded();
    plugins.failing = new Set(['do three 5', 'do two 1']);
    await expect(changeNetwork(ID, toRate(5), runtime)).rejects.toThrow('do three 5');
    plugins.failing.clear();
    plugins.calls.length = 0;
    expect(await repairOne(seen, {}, runtime)).toMatchObject({ state: 'sound' });
    expect(plugins.rates).toEqual({ one: 1, two: 1, three: 1 });
    expect(plugins.calls.slice(-3)).toEqual(['CHECK one 1', 'CHECK two 1', 'CHECK three 1']);
    expect(recorded()).toMatchObject({ change: undefined, isNoted: false, runners: [] });
  });
});

function recorded(): KnownAttachment {
  const record = readAttachment({ journals: [runtime.stateDir] }, ID);
  if (record === undefined) throw new Error('the attachment is not on record');
  return record;
}

describe('settings after a change', () => {
  const LIST = {
    cniVersion: '1.1.0',
    name: 'podnet',
    plugins: [
      { type: 'bridge', bridge: 'br0' },
      { type: 'portmap', capabilities: { portMappings: true, ips: false } },
      { type: 'tuning', MTU: 1400, sysctl: { a: '1' } },
      { type: 'tuning', dataDir: '/x' },
    ],
  };
  const BEFORE = { capabilityArgs: { portMappings: [1], mac: 'x' }, source: JSON.stringify(LIST) };

  const after = (change: Change) => {
    const { capabilityArgs, source } = applyChange(BEFORE, change);
    return { capabilityArgs, plugins: JSON.parse(source).plugins };
  };

  describe('applyChange()', () => {
    test('replaces what is given, and keeps the rest', () => {
      expect(after({ capabilityArgs: { portMappings: [2] } })).toEqual({
        capabilityArgs: { mac: 'x', portMappings: [2] },
        plugins: LIST.plugins,
      });
      expect(after({ capabilityArgs: { portMappings: null } }).capabilityArgs).toEqual({ mac: 'x' });
      expect(after({ options: { bridge: { mtu: 9000 } } }).plugins[0]).toEqual({
        type: 'bridge',
        bridge: 'br0',
        mtu: 9000,
      });
    });

    test('names plugins by index, reads keys in any case, and takes options away', () => {
      const { plugins } = after({ options: { 2: { mtu: 1300, sysctl: null }, 3: { mtu: 1200 } } });
      expect(plugins.slice(2)).toEqual([
        { type: 'tuning', mtu: 1300 },
        { type: 'tuning', dataDir: '/x', mtu: 1200 },
      ]);
    });

    test('keeps the text of the list if no option changes, and the form of a single plugin', () => {
      expect(applyChange(BEFORE, { capabilityArgs: { portMappings: [] } }).source).toBe(BEFORE.source);
      const source = '{"cniVersion":"0.4.0","name":"one","type":"bridge"}';
      const changed = applyChange({ capabilityArgs: {}, source }, { options: { bridge: { mtu: 1 } } });
      expect(JSON.parse(changed.source)).toMatchObject({ name: 'one', type: 'bridge', mtu: 1 });
    });

    test.each([
      ['a capability that is not declared', { capabilityArgs: { ips: [] } }, 'declared are "portMappings"'],
      ['a plugin that is not there', { options: { vlan: {} } }, 'has no plugin "vlan"'],
      ['an index that is not there', { options: { 4: {} } }, 'has no plugin "4"'],
      ['a type that occurs twice', { options: { tuning: {} } }, 'by its index: 2, 3'],
    ])('refuses %s', (_what, change, message) => {
      expect(() => applyChange(BEFORE, change)).toThrow(message);
    });
  });

  describe('a record', () => {
    const record = (more: object) =>
      ({ phase: 'attached', runners: [], ...BEFORE, ...more }) as unknown as KnownAttachment;

    test('has been changed if its settings differ, or are about to', () => {
      expect(isChangedSince(record({}), record({}))).toBe(false);
      expect(isChangedSince(record({}), record({ capabilityArgs: {} }))).toBe(true);
      const changing = record({ change: { to: BEFORE, plugins: [], op: '1' } });
      expect(isChangedSince(record({}), changing)).toBe(true);
      expect(isChangedSince(changing, changing)).toBe(false);
      expect(isChangedSince(undefined, record({}))).toBe(false);
    });
  });
});
