import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { readEntry } from '../../../../src/attachments/entries.ts';
import { parsePlugin } from '../../../../src/chain/config/conflist.ts';
import { collectGarbage } from '../../../../src/chain/records/collect-garbage.ts';
import { findNetworkOfAdd } from '../../../../src/chain/records/known-add.ts';
import {
  addNetwork,
  addPlugin,
  checkNetwork,
  checkPlugin,
  deleteNetwork,
  deletePlugin,
  networkStatus,
} from '../../../../src/chain/run/run.ts';
import type { PluginEvent } from '../../../../src/chain/run/runtime.ts';
import { CniError } from '../../../../src/cni/errors.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import { SPEC_VERSIONS } from '../../../../src/cni/result.ts';
import {
  ATTACHMENT,
  FIXTURE_PLUGINS,
  listOf,
  makeNoopChain,
  type NoopChain,
} from '../../../helpers/noop-chain.ts';
import { until } from '../../../helpers/until.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const cacheFile = () => path.join(chain.runtime.cacheDir, 'results/testnet-c1-eth0');
const ips = (address: string): JsonObject => ({ cniVersion: '1.1.0', ips: [{ address }] });
const threePlugins = (cniVersion = '1.1.0', more: JsonObject = {}) =>
  listOf(
    cniVersion,
    [
      chain.noop('one', { ReportResult: ips('10.1.0.2/24') }),
      chain.noop('two', {}, { capabilities: { mac: true, ips: false } }),
      chain.noop('three', { ReportResult: 'INJECT-DNS' }),
    ],
    more,
  );
async function errorOf(step: Promise<unknown>): Promise<CniError> {
  const error = await step.then(
    () => new Error('nothing was thrown'),
    thrown => thrown,
  );
  if (error instanceof CniError) return error;
  throw error;
}

describe('addNetwork()', () => {
  test('passes the result through every plugin and returns the last one', async () => {
    const result = await addNetwork(threePlugins(), ATTACHMENT, chain.runtime);
    const first = ips('10.1.0.2/24');
    expect<unknown>(result).toEqual({ ...first, dns: { nameservers: ['1.2.3.4'] } });
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'ADD three']);
    expect(chain.calls().map(({ request }) => request.prevResult)).toEqual([
      undefined,
      first,
      first,
    ] as never);
  });

  test('looks for each executable once', async () => {
    const looked: string[] = [];
    const find = (type: string, dirs: readonly string[]) => {
      looked.push(type);
      return path.join(dirs[0] ?? '', type);
    };
    await addNetwork(threePlugins(), ATTACHMENT, { ...chain.runtime, find });
    expect(looked).toEqual(['noop', 'noop', 'noop']);
  });

  test('returns the first result when called again under its name', async () => {
    const runtime = { ...chain.runtime, stateDir: path.join(chain.runtime.cacheDir, 'state') };
    const first = await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, request: 'a' });
    expect(await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, request: 'a' })).toEqual(first);
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'ADD three']);
    await addNetwork(threePlugins(), ATTACHMENT, { ...runtime, request: 'b' });
    expect(chain.order()).toHaveLength(6);
  });

  test('gives every plugin the six variables and its environment', async () => {
    const env = { ...process.env, CNI_IFNAME: 'inherited', TRACEPARENT: '00-trace' };
    const args = [['K8S_POD_NAME', 'p']] as const;
    await addNetwork(threePlugins(), { ...ATTACHMENT, args }, { ...chain.runtime, env });
    expect(chain.calls()[1]?.env).toEqual({
      CNI_COMMAND: 'ADD',
      CNI_CONTAINERID: 'c1',
      CNI_NETNS: '/run/netns/none',
      CNI_IFNAME: 'eth0',
      CNI_ARGS: 'K8S_POD_NAME=p',
      CNI_PATH: chain.runtime.pluginDirs.join(':'),
    });
  });

  test('gives every plugin call a span of its own in the trace of the caller', async () => {
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const env = {
      ...process.env,
      TRACEPARENT: `00-${trace}-00f067aa0ba902b7-01`,
      TRACESTATE: 'vendor=x',
      BAGGAGE: 'tenant=y',
    };
    const events: PluginEvent[] = [];
    await addNetwork(threePlugins(), ATTACHMENT, {
      ...chain.runtime,
      env,
      onPlugin: event => events.push(event),
    });
    const seen = chain.calls().map(call => call.env);
    expect(seen.map(({ TRACESTATE, BAGGAGE }) => [TRACESTATE, BAGGAGE])).toEqual(
      Array(3).fill(['vendor=x', 'tenant=y']),
    );
    expect(seen.map(({ TRACEPARENT }) => TRACEPARENT)).toEqual(
      events.map(({ span }) => `00-${trace}-${span?.spanId}-01`),
    );
    expect(new Set(events.map(({ span }) => span?.spanId)).size).toBe(3);
    expect(events[0]?.span).toMatchObject({ parentSpanId: '00f067aa0ba902b7', sampled: true });
  });

  test('what interrupts an ADD does not interrupt its undo', async () => {
    const interrupt = new AbortController();
    const list = listOf('1.1.0', [chain.noop('one'), { type: 'hang' }]);
    // The second may have begun by then, and is undone as well.
    const env = { ...process.env, HANG_ON: 'ADD' };
    const runtime = { ...chain.runtime, env, signal: interrupt.signal };
    const adding = errorOf(addNetwork(list, ATTACHMENT, runtime));
    await until(() => chain.order().includes('ADD one'));
    interrupt.abort();
    await adding;
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
  });

  test('an onPlugin that throws changes nothing', async () => {
    const warnings: string[] = [];
    const onPlugin = () => {
      throw new Error('mine');
    };
    const onWarning = ({ message }: Error) => void warnings.push(message);
    await addNetwork(threePlugins(), ATTACHMENT, { ...chain.runtime, onPlugin, onWarning });
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'ADD three']);
    expect(warnings).toHaveLength(3);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, Date.now() + 30_000, { DEL: 1e12 }])(
    'refuses %p as deadline before any plugin is called',
    async deadlineMs => {
      await expect(addNetwork(threePlugins(), ATTACHMENT, { ...chain.runtime, deadlineMs })).rejects.toThrow(
        'it is a duration, not a time',
      );
      expect(chain.order()).toEqual([]);
    },
  );

  test('drops an invalid trace, but keeps its baggage', async () => {
    const env = { ...process.env, TRACEPARENT: 'nonsense', TRACESTATE: 'vendor=x', BAGGAGE: 'tenant=y' };
    const events: PluginEvent[] = [];
    await addNetwork(threePlugins(), ATTACHMENT, {
      ...chain.runtime,
      env,
      onPlugin: event => events.push(event),
    });
    expect(chain.calls()[0]?.env.TRACEPARENT).toBeUndefined();
    expect(chain.calls()[0]?.env.TRACESTATE).toBeUndefined();
    expect(chain.calls()[0]?.env.BAGGAGE).toBe('tenant=y');
    expect(events[0]?.span).toBeUndefined();
  });

  test('shows the versions of all plugins when one refuses that of the list', async () => {
    const list = listOf('1.1.0', [
      chain.noop('one', { ReportVersionSupport: ['0.4.0', '1.0.0'] }),
      chain.noop('two', { ReportError: 'incompatible CNI versions', ReportErrorCode: 1 }),
    ]);
    const error = await errorOf(addNetwork(list, ATTACHMENT, chain.runtime));
    expect(error).toMatchObject({ code: 1, message: 'incompatible CNI versions', plugin: { index: 1 } });
    // VERSION carries no configuration, so that the script cannot answer: both list all they know.
    expect(error.details).toContain('the highest version that all plugins support is 1.1.0');
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one']);
  });

  test('offers each plugin the capabilities it declares', async () => {
    const capabilityArgs = { mac: '0a:00:00:00:00:01', ips: ['10.0.0.9/24'] };
    await addNetwork(threePlugins(), { ...ATTACHMENT, capabilityArgs }, chain.runtime);
    expect(chain.calls().map(({ request }) => request.runtimeConfig)).toEqual([
      undefined,
      { mac: '0a:00:00:00:00:01' },
      undefined,
    ] as never);
    expect(readEntry(chain.runtime.cacheDir, ID)?.capabilityArgs).toEqual(capabilityArgs);
  });

  test('does one after the other for one container, and GC beside them names it to plugins', async () => {
    const slow = chain.noop('one');
    const list = listOf('1.1.0', [slow]);
    await Promise.all([
      addNetwork(list, ATTACHMENT, chain.runtime),
      checkNetwork(list, ATTACHMENT, chain.runtime),
      collectGarbage(list, { all: true }, chain.runtime),
      deleteNetwork(list, ATTACHMENT, chain.runtime),
    ]);
    expect(chain.order().filter(call => call !== 'GC one')).toEqual(['ADD one', 'CHECK one', 'DEL one']);
    const gc = chain.calls().find(({ env }) => env.CNI_COMMAND === 'GC');
    const { containerId, ifname } = ATTACHMENT;
    expect(gc?.request['cni.dev/valid-attachments']).toEqual([{ containerID: containerId, ifname }]);
  });

  test('records the attachment with its original configuration', async () => {
    const list = threePlugins();
    const result = await addNetwork(list, ATTACHMENT, chain.runtime);
    expect(readEntry(chain.runtime.cacheDir, ID)).toEqual({
      ...ID,
      netns: '/run/netns/none',
      args: [],
      capabilityArgs: {},
      source: list.source,
      result,
    });
    expect(findNetworkOfAdd(ID, chain.runtime)).toEqual(list);
  });

  test('converts a result in another version, and keeps unknown keys', async () => {
    const old = {
      cniVersion: '0.3.1',
      ips: [{ version: '4', address: '10.1.0.2/24' }],
      extra: { kept: true },
    };
    const list = listOf('1.0.0', [chain.noop('one', { ReportResult: old }), chain.noop('two')]);
    const result = await addNetwork(list, ATTACHMENT, chain.runtime);
    const converted = { cniVersion: '1.0.0', ips: [{ address: '10.1.0.2/24' }], extra: { kept: true } };
    expect(chain.calls()[1]?.request.prevResult).toEqual(converted);
    expect<unknown>(result).toEqual(converted);
  });

  test('treats a result without version as one in the version of the list', async () => {
    const list = listOf('0.4.0', [
      chain.noop('one', { ReportResult: { ips: [{ version: '4', address: '10.1.0.2/24' }] } }),
    ]);
    expect((await addNetwork(list, ATTACHMENT, chain.runtime)).cniVersion).toBe('0.4.0');
  });

  test.each([...SPEC_VERSIONS])('[%s] ADD passes prevResult, DEL and CHECK from 0.4.0 on', async version => {
    const list = listOf(version, [
      chain.noop('one', { ReportResult: ips('10.1.0.2/24') }),
      chain.noop('two'),
    ]);
    await addNetwork(list, ATTACHMENT, chain.runtime);
    const gated = ['0.4.0', '1.0.0', '1.1.0'].includes(version);
    if (gated) await checkNetwork(list, ATTACHMENT, chain.runtime);
    else expect(await errorOf(checkNetwork(list, ATTACHMENT, chain.runtime))).toMatchObject({ code: 1 });
    await deleteNetwork(list, ATTACHMENT, chain.runtime);
    const [, added, ...later] = chain.calls();
    expect(added?.request.prevResult).toMatchObject({ cniVersion: version });
    expect(later.map(call => call.request.prevResult !== undefined)).toEqual(
      gated ? [true, true, true, true] : [false, false],
    );
  });

  test('undoes the plugins that ran in reverse order, including the failing one', async () => {
    const list = listOf('1.1.0', [
      chain.noop('one', { ReportResult: ips('10.1.0.2/24') }),
      chain.noop('two', { ReportError: 'no room', ReportErrorCode: 123 }),
      chain.noop('three'),
    ]);
    const error = await errorOf(addNetwork(list, ATTACHMENT, chain.runtime));
    expect(error).toMatchObject({ code: 123, message: 'no room' });
    expect(error.plugin).toMatchObject({
      network: 'testnet',
      type: 'noop',
      index: 1,
      verb: 'ADD',
      exitCode: 1,
    });
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one']);
    expect(chain.calls()[3]?.request.prevResult).toEqual(ips('10.1.0.2/24'));
    // The script makes DEL of the same plugin fail as well: the first error stays the first.
    expect(error.details).toBe('undoing it failed too: noop DEL: no room');
    expect(fs.existsSync(cacheFile())).toBe(false);
  });

  test('leaves nothing to undo of a plugin that refuses the version on ADD and DEL', async () => {
    const refusing = { ReportError: 'incompatible CNI versions', ReportErrorCode: 1 };
    const older = listOf('1.1.0', [chain.noop('one'), chain.noop('two', refusing)]);
    const error = await errorOf(addNetwork(older, ATTACHMENT, chain.runtime));
    expect(error).toMatchObject({ code: 1, plugin: { index: 1, verb: 'ADD' } });
    expect(error.details ?? '').not.toContain('undoing it failed too');
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one']);
    // The list has been given another version since.
    await addNetwork(listOf('1.0.0', [chain.noop('three')]), ATTACHMENT, chain.runtime);
    expect(chain.order().slice(4)).toEqual(['ADD three']);
  });

  test('reports how the process ended when the plugin does not', async () => {
    const list = listOf('1.1.0', [chain.noop('one'), { type: 'fail' }]);
    const error = await errorOf(addNetwork(list, ATTACHMENT, chain.runtime));
    expect(error.message).toContain(
      'Plugin "fail" failed with "first line\\nsecond line\\nout of cheese": exit status 7',
    );
    expect(error.plugin).toMatchObject({ exitCode: 7, stderr: 'first line\nsecond line\nout of cheese\n' });
    expect(error.plugin?.durationMs).toBeNumber();
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
  });

  test.each([
    ['nothing', 6, 'Cannot decode output of plugin "garbage": it printed no result'],
    ['text', 6, 'Cannot decode output of plugin "garbage": '],
    ['array', 6, 'Cannot decode output of plugin "garbage": expected a JSON object, found an array'],
    ['two', 6, 'Cannot decode output of plugin "garbage": '],
    ['huge', 0, 'Plugin "garbage" printed more than 16 MiB'],
  ])('undoes when a plugin prints %s', async (GARBAGE, code, message) => {
    const list = listOf('1.1.0', [chain.noop('one'), { type: 'garbage' }]);
    const runtime = { ...chain.runtime, env: { ...process.env, GARBAGE } };
    const error = await errorOf(addNetwork(list, ATTACHMENT, runtime));
    expect(error.code).toBe(code);
    expect(error.message).toContain(message);
    expect(error.plugin).toMatchObject({
      network: 'testnet',
      type: 'garbage',
      index: 1,
      verb: 'ADD',
      executable: path.join(FIXTURE_PLUGINS, 'garbage'),
      durationMs: expect.any(Number),
      ...(GARBAGE === 'huge' ? { signal: 'SIGTERM', ended: 'output' } : { exitCode: 0 }),
    });
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
  });

  test('refuses a result of the wrong shape, and names the position', async () => {
    const list = listOf('1.1.0', [chain.noop('one', { ReportResult: { cniVersion: '1.1.0', ips: [{}] } })]);
    const error = await errorOf(addNetwork(list, ATTACHMENT, chain.runtime));
    expect(error.code).toBe(6);
    expect(error.message).toContain('"ips[0].address"');
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
  });

  test('ends a plugin at its deadline and undoes', async () => {
    const list = listOf('1.1.0', [chain.noop('one'), { type: 'hang' }]);
    const error = await errorOf(addNetwork(list, ATTACHMENT, { ...chain.runtime, deadlineMs: 1000 }));
    expect(error.message).toBe('Plugin "hang" did not finish within 1 s: its process group was killed');
    expect(error.plugin?.signal).toBe('SIGKILL');
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
  });

  test('starts nothing when an executable is missing', async () => {
    const list = listOf('1.1.0', [chain.noop('one'), { type: 'missing' }]);
    const error = await errorOf(addNetwork(list, ATTACHMENT, chain.runtime));
    expect(error.message).toStartWith('Cannot find plugin "missing": no such file in');
    expect(chain.order()).toEqual([]);
  });

  test('undoes when the attachment cannot be recorded', async () => {
    fs.mkdirSync(chain.runtime.cacheDir);
    fs.symlinkSync('nowhere', path.join(chain.runtime.cacheDir, 'results'));
    const error = await errorOf(addNetwork(threePlugins(), ATTACHMENT, chain.runtime));
    expect(error.code).toBe(5);
    expect(error.message).toStartWith(`Cannot write cached result "${cacheFile()}"`);
    expect(chain.order().slice(3)).toEqual(['DEL three', 'DEL two', 'DEL one']);
  });

  test('starts nothing when the cache cannot be read', async () => {
    fs.writeFileSync(chain.runtime.cacheDir, '');
    expect((await errorOf(addNetwork(threePlugins(), ATTACHMENT, chain.runtime))).code).toBe(5);
    expect(chain.order()).toEqual([]);
  });

  test('leaves the attachment of an earlier ADD alone', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, chain.runtime);
    chain.rescript('one', { ReportError: 'eth0 already exists' });
    const before = fs.readFileSync(cacheFile(), 'utf8');
    const error = await errorOf(addNetwork(list, ATTACHMENT, chain.runtime));
    expect(error).toMatchObject({ code: 100, message: 'eth0 already exists' });
    expect(error.details).toContain('an earlier ADD is recorded');
    expect(chain.order().slice(3)).toEqual(['ADD one']);
    expect(fs.readFileSync(cacheFile(), 'utf8')).toBe(before);
  });

  test('is undone when the cached result of an earlier ADD has outlived its interface', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, chain.runtime);
    chain.rescript('two', { ReportError: 'the port is taken' });
    const openWitness = async () => ({ findLife: async () => undefined, hasInterface: () => false });
    const error = await errorOf(addNetwork(list, ATTACHMENT, { ...chain.runtime, openWitness }));
    expect(error).toMatchObject({ code: 100, message: 'the port is taken' });
    expect(error.details).not.toContain('an earlier ADD is recorded');
    expect(chain.order().slice(3)).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one']);
  });

  test.each([
    ['an empty container id', { containerId: '' }, 3, 'missing containerID'],
    ['a path as container id', { containerId: '../c' }, 4, 'Cannot use container id "../c"'],
    ['an empty interface name', { ifname: '' }, 4, 'Cannot use interface name ""'],
    ['a path as interface name', { ifname: 'a/b' }, 4, 'Cannot use interface name "a/b"'],
    ['an interface name of 16 bytes', { ifname: 'sixteen-bytes-xx' }, 4, 'longer than 15 bytes'],
    ['no namespace', { netns: '' }, 4, 'Cannot use network namespace ""'],
    [
      'a separator in an argument',
      { args: [['K', 'a;B=c']] as [string, string][] },
      4,
      'Cannot use CNI_ARGS pair',
    ],
  ])('refuses %s before anything runs', async (_, more, code, message) => {
    const error = await errorOf(addNetwork(threePlugins(), { ...ATTACHMENT, ...more }, chain.runtime));
    expect(error.code).toBe(code);
    expect(error.message).toContain(message);
    expect(chain.order()).toEqual([]);
  });

  test('reports each plugin as it finishes', async () => {
    const events: PluginEvent[] = [];
    const list = listOf('1.1.0', [chain.noop('one', { ReportStderr: 'warning' }), { type: 'fail' }]);
    await errorOf(addNetwork(list, ATTACHMENT, { ...chain.runtime, onPlugin: event => events.push(event) }));
    expect(
      events.map(event => [
        event.verb,
        event.plugin,
        event.index,
        event.stderr.slice(0, 7),
        event.error?.code,
      ]),
    ).toEqual([
      ['ADD', 'noop', 0, 'warning', undefined],
      ['ADD', 'fail', 1, 'first l', 0],
      ['DEL', 'fail', 1, 'first l', 0],
      ['DEL', 'noop', 0, 'warning', undefined],
    ]);
    expect(events[0]?.result).toEqual({ cniVersion: '1.1.0' });
  });
});

describe('checkNetwork()', () => {
  test('calls every plugin in order, with the result, configuration and arguments of the ADD', async () => {
    const capabilityArgs = { mac: '0a:00:00:00:00:01' };
    const result = await addNetwork(threePlugins(), { ...ATTACHMENT, capabilityArgs }, chain.runtime);
    const changed = listOf('1.1.0', [chain.noop('other')]);
    await checkNetwork(changed, ATTACHMENT, chain.runtime);
    expect(chain.order().slice(3)).toEqual(['CHECK one', 'CHECK two', 'CHECK three']);
    const checks = chain.calls().slice(3);
    expect(checks.map(call => call.request.prevResult)).toEqual([result, result, result]);
    expect(checks[1]?.request.runtimeConfig).toEqual(capabilityArgs);
  });

  test('stops at the first plugin that objects', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, chain.runtime);
    chain.rescript('two', { ReportError: 'address is gone', ReportErrorCode: 103 });
    const error = await errorOf(checkNetwork(list, ATTACHMENT, chain.runtime));
    expect(error).toMatchObject({ code: 103, message: 'address is gone' });
    expect(chain.order().slice(3)).toEqual(['CHECK one', 'CHECK two']);
  });

  test('runs nothing with disableCheck, even for an old version', async () => {
    await checkNetwork(threePlugins('0.3.1', { disableCheck: true }), ATTACHMENT, chain.runtime);
    expect(chain.order()).toEqual([]);
  });

  test('reports that there is no ADD on record', async () => {
    const error = await errorOf(checkNetwork(threePlugins(), ATTACHMENT, chain.runtime));
    expect(error.message).toContain(`no ADD is recorded in "${cacheFile()}"`);
    expect(chain.order()).toEqual([]);
  });

  test('reads and converts the bare result that libcni 0.7 recorded', async () => {
    fs.mkdirSync(path.dirname(cacheFile()), { recursive: true });
    fs.writeFileSync(
      cacheFile(),
      '{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.0.2/24"}],"dns":{}}',
    );
    await checkNetwork(threePlugins('1.0.0'), ATTACHMENT, chain.runtime);
    expect(chain.calls()[0]?.request.prevResult).toEqual({
      cniVersion: '1.0.0',
      ips: [{ address: '10.1.0.2/24' }],
    });
  });

  test.each([
    ['is not JSON', '{', 6],
    ['has an unknown version', '{"cniVersion":"7.0.0"}', 1],
  ])('reports a record that %s', async (_, text, code) => {
    fs.mkdirSync(path.dirname(cacheFile()), { recursive: true });
    fs.writeFileSync(cacheFile(), text);
    expect((await errorOf(checkNetwork(threePlugins(), ATTACHMENT, chain.runtime))).code).toBe(code);
  });
});

describe('deleteNetwork()', () => {
  test('runs in reverse with the configuration and result of the ADD, and deletes the record', async () => {
    const result = await addNetwork(threePlugins(), ATTACHMENT, chain.runtime);
    await deleteNetwork(listOf('1.1.0', [chain.noop('other')]), { ...ATTACHMENT, netns: '' }, chain.runtime);
    expect(chain.order().slice(3)).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(chain.calls()[3]).toMatchObject({ env: { CNI_NETNS: '' }, request: { prevResult: result } });
    expect(fs.existsSync(cacheFile())).toBe(false);
  });

  test('calls every plugin after one failed, joins the errors and keeps the record', async () => {
    const list = threePlugins();
    await addNetwork(list, ATTACHMENT, chain.runtime);
    chain.rescript('three', { ReportError: 'three is stuck', ReportErrorCode: 101 });
    chain.rescript('one', { ReportError: 'one is stuck', ReportErrorCode: 102 });
    const error = await errorOf(deleteNetwork(list, ATTACHMENT, chain.runtime));
    expect(chain.order().slice(3)).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(error).toMatchObject({
      code: 101,
      message:
        'Cannot delete interface "eth0" of container "c1" from network "testnet": noop DEL: three is stuck; noop DEL: one is stuck',
    });
    expect(fs.existsSync(cacheFile())).toBe(true);
    chain.rescript('three', {});
    chain.rescript('one', {});
    await deleteNetwork(list, ATTACHMENT, chain.runtime);
    expect(fs.existsSync(cacheFile())).toBe(false);
  });

  test('throws the error of a single failing plugin unchanged', async () => {
    const list = threePlugins();
    chain.rescript('two', { ReportError: 'stuck', ReportErrorCode: 11 });
    expect(await errorOf(deleteNetwork(list, ATTACHMENT, chain.runtime))).toMatchObject({
      code: 11,
      message: 'stuck',
    });
  });

  test('runs the other plugins when an executable is missing', async () => {
    const list = listOf('1.1.0', [chain.noop('one'), { type: 'missing' }, chain.noop('three')]);
    const error = await errorOf(deleteNetwork(list, ATTACHMENT, chain.runtime));
    expect(error.message).toStartWith('Cannot find plugin "missing"');
    expect(chain.order()).toEqual(['DEL three', 'DEL one']);
  });

  test('succeeds twice, and without an ADD', async () => {
    const list = threePlugins();
    await deleteNetwork(list, ATTACHMENT, chain.runtime);
    await deleteNetwork(list, ATTACHMENT, chain.runtime);
    expect(chain.order()).toHaveLength(6);
  });

  test.each([
    ['is torn', '{"kind":"cniCacheV1","config":'],
    ['holds a result of no known version', '{"cniVersion":"7.0.0"}'],
  ])('continues without a record that %s, and removes it', async (_, text) => {
    fs.mkdirSync(path.dirname(cacheFile()), { recursive: true });
    fs.writeFileSync(cacheFile(), text);
    const warnings: string[] = [];
    const onWarning = ({ message }: CniError) => warnings.push(message);
    await deleteNetwork(threePlugins(), ATTACHMENT, { ...chain.runtime, onWarning });
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatch(/cached result/);
    expect(chain.calls().map(call => call.request.prevResult)).toEqual([undefined, undefined, undefined]);
    expect(fs.existsSync(cacheFile())).toBe(false);
  });

  test('refuses names that are paths out of the cache directory', async () => {
    const error = await errorOf(
      deleteNetwork(threePlugins(), { ...ATTACHMENT, containerId: '../../x' }, chain.runtime),
    );
    expect(error.code).toBe(4);
    expect(chain.order()).toEqual([]);
  });
});

describe('networkStatus()', () => {
  test('calls the plugins in order and passes the code on', async () => {
    const list = threePlugins();
    await networkStatus(list, chain.runtime);
    chain.rescript('two', { ReportError: 'daemon is down', ReportErrorCode: 50 });
    expect(await errorOf(networkStatus(list, chain.runtime))).toMatchObject({
      code: 50,
      message: 'daemon is down',
    });
    expect(chain.order()).toEqual(['STATUS one', 'STATUS two', 'STATUS three', 'STATUS one', 'STATUS two']);
  });

  test('calls no plugin before 1.1.0', async () => {
    await networkStatus(threePlugins('1.0.0'), chain.runtime);
    expect(chain.order()).toEqual([]);
  });
});

describe('one plugin without a list', () => {
  let chain: NoopChain;
  beforeEach(() => {
    chain = makeNoopChain();
  });
  afterEach(() => chain.dispose());

  const ID = { network: 'single', containerId: 'c1', ifname: 'eth0' };
  const RESULT = { cniVersion: '0.4.0', ips: [{ version: '4', address: '10.0.0.2/24' }] };
  const textOf = (more: JsonObject = {}) =>
    JSON.stringify(
      chain.noop('one', { ReportResult: RESULT }, { name: 'single', cniVersion: '0.4.0', ...more }),
    );

  describe('addPlugin(), checkPlugin(), deletePlugin()', () => {
    test('attach, check and detach, with the bytes of the configuration on record', async () => {
      const text = ` ${textOf({ capabilities: { mac: true } })}\n`;
      const plugin = parsePlugin(text);
      const attachment = { ...ATTACHMENT, capabilityArgs: { mac: 'x', other: 1 } };
      expect<unknown>(await addPlugin(plugin, attachment, chain.runtime)).toEqual(RESULT);
      expect(readEntry(chain.runtime.cacheDir, ID)).toMatchObject({ source: text, result: RESULT });
      expect(findNetworkOfAdd(ID, chain.runtime)).toEqual(plugin);
      await checkPlugin(plugin, attachment, chain.runtime);
      await deletePlugin(plugin, attachment, chain.runtime);
      expect(chain.calls().map(({ command, request }) => [command, request.prevResult])).toEqual([
        ['ADD', undefined],
        ['CHECK', RESULT],
        ['DEL', RESULT],
      ]);
      expect(chain.calls()[0]?.request).toMatchObject({
        name: 'single',
        cniVersion: '0.4.0',
        runtimeConfig: { mac: 'x' },
      });
      expect(fs.readdirSync(path.join(chain.runtime.cacheDir, 'results'))).toEqual([]);
    });

    test('ignore the keys of a list', async () => {
      const plugin = parsePlugin(textOf({ disableCheck: true, cniVersions: ['1.0.0'], disableGC: true }));
      expect(plugin).toMatchObject({ version: '0.4.0', disableCheck: false, disableGC: false });
      await addPlugin(plugin, ATTACHMENT, chain.runtime);
      await checkPlugin({ ...plugin, disableCheck: true }, ATTACHMENT, chain.runtime);
      expect(chain.calls().map(({ command, request }) => [command, request.cniVersion])).toEqual([
        ['ADD', '0.4.0'],
        ['CHECK', '0.4.0'],
      ]);
    });

    test('undo a failed ADD', async () => {
      const plugin = parsePlugin(textOf());
      chain.rescript('one', { ReportError: 'no', ReportErrorCode: 7 });
      await expect(addPlugin(plugin, ATTACHMENT, chain.runtime)).rejects.toMatchObject({
        code: 7,
        message: 'no',
      });
      expect(chain.order()).toEqual(['ADD one', 'DEL one']);
    });
  });
});
