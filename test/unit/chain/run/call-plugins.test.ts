import { describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../../../src/chain/config/conflist.ts';
import { isOwnPlugin } from '../../../../src/chain/config/find-plugin.ts';
import {
  acceptResult,
  buildGcRequest,
  buildRequest,
  callAll,
  callEach,
  callPlugins,
  describePluginError,
  IGNORED,
  joinErrors,
  type PluginReply,
  type ReadReply,
  type RequestParts,
  withDetails,
} from '../../../../src/chain/run/call-plugins.ts';
import type { ExecOutcome } from '../../../../src/chain/run/exec-plugin.ts';
import type { ChainRuntime } from '../../../../src/chain/run/runtime.ts';
import type { Segment, SegmentRunner } from '../../../../src/chain/run/segment.ts';
import type { Command } from '../../../../src/cni/env.ts';
import { CniError } from '../../../../src/cni/errors.ts';
import { parseReply } from '../../../../src/cni/invocation.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import { FIXTURE_PLUGINS, listOf } from '../../../helpers/noop-chain.ts';

function build(conf: JsonObject, parts: RequestParts = {}, cniVersion = '1.1.0'): JsonObject {
  const list = parseNetwork(JSON.stringify({ cniVersion, name: 'net', args: { lost: 1 }, plugins: [conf] }));
  const [entry] = list.plugins;
  if (entry === undefined) throw new Error('no entry');
  return buildRequest(list, entry, parts);
}

describe('buildRequest()', () => {
  test('sets name and version over those of the entry, and keeps every other key', () => {
    const conf = {
      type: 't',
      name: 'mine',
      cniVersion: '0.1.0',
      some: { deep: [1, null] },
      args: { cni: {} },
    };
    expect(build(conf)).toEqual({ ...conf, name: 'net', cniVersion: '1.1.0' });
  });

  test('writes the version that was selected', () => {
    expect(build({ type: 't' }, {}, '').cniVersion).toBe('0.1.0');
  });

  test('drops a prevResult of the file and sets the given one', () => {
    const conf = { type: 't', prevResult: { cniVersion: '1.1.0', stale: true } };
    expect('prevResult' in build(conf)).toBe(false);
    const prevResult = { cniVersion: '1.1.0', ips: [] };
    expect(build(conf, { prevResult }).prevResult).toEqual(prevResult);
  });

  test.each<[string, JsonObject, JsonObject, JsonObject | undefined]>([
    ['only what is true', { a: true, b: false }, { a: 1, b: 2, c: 3 }, { a: 1 }],
    ['false and empty values as well', { a: true, b: true }, { a: false, b: [] }, { a: false, b: [] }],
    ['nothing that is not offered', { a: true }, { b: 1 }, undefined],
    ['nothing that only a prototype has', { toString: true, constructor: true }, {}, undefined],
    ['nothing without capabilities', {}, { a: 1 }, undefined],
  ])('gives runtimeConfig %s', (_, capabilities, capabilityArgs, expected) => {
    const request = build({ type: 't', capabilities }, { capabilityArgs });
    expect(request.runtimeConfig).toEqual(expected as never);
    expect(request.capabilities).toEqual(capabilities);
  });

  test('replaces a runtimeConfig of the file only when a capability is offered', () => {
    const conf = { type: 't', capabilities: { a: true }, runtimeConfig: { z: 1 } };
    expect(build(conf).runtimeConfig).toEqual({ z: 1 });
    expect(build(conf, { capabilityArgs: { a: 2 } }).runtimeConfig).toEqual({ a: 2 });
  });

  test('keeps a key named __proto__', () => {
    const list = parseNetwork(
      '{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"t","__proto__":{"x":1}}]}',
    );
    const [entry] = list.plugins;
    if (entry === undefined) throw new Error('no entry');
    expect(JSON.stringify(buildRequest(list, entry))).toBe(
      '{"type":"t","__proto__":{"x":1},"name":"n","cniVersion":"1.0.0"}',
    );
  });
});

test('buildGcRequest() lists the attachments to keep under both keys, as an array even when empty', () => {
  const list = parseNetwork('{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"t","prevResult":{}}]}');
  const [entry] = list.plugins;
  if (entry === undefined) throw new Error('no entry');
  const keys = [{ containerID: 'c', ifname: 'eth0' }];
  expect(buildGcRequest(list, entry, keys)).toEqual({
    type: 't',
    name: 'n',
    cniVersion: '1.1.0',
    'cni.dev/valid-attachments': keys,
    'cni.dev/attachments': keys,
  });
  expect(buildGcRequest(list, entry, [])['cni.dev/valid-attachments']).toEqual([]);
});

const OK: ExecOutcome = { exitCode: 0, stdout: '{}', stderr: '', durationMs: 1 };

const LIST = listOf('1.1.0', [{ type: 'noop' }, { type: 'fail' }, { type: 'hang' }]);

/** Notes what a runner is asked; the file names stand for the plugins. */
function makeJournal(
  joined: readonly string[],
  outcomes: Readonly<Record<string, Partial<ExecOutcome>>> = {},
) {
  const journal: string[] = [];
  const nameOf = (path: string) => path.slice(FIXTURE_PLUGINS.length + 1);
  const segments: SegmentRunner = {
    joins: path => joined.includes(nameOf(path)),
    async *run({ calls, threadsResult, stopsAtFailure }: Segment) {
      const names = calls.map(({ path }) => nameOf(path));
      journal.push(`run ${names.join(' ')}${threadsResult ? ' threaded' : ''}`);
      try {
        for (const name of names) {
          const outcome = { ...OK, ...outcomes[name] };
          yield outcome;
          if (outcome.signal !== undefined || (outcome.exitCode !== 0 && stopsAtFailure)) return;
        }
      } finally {
        journal.push('end');
      }
    },
  };
  const runtime: ChainRuntime = { pluginDirs: [FIXTURE_PLUGINS], segments };
  return { journal, runtime };
}

function callOf<Reply>(verb: Command, order: readonly number[], read: ReadReply<Reply>) {
  const requests: unknown[] = [];
  return {
    requests,
    call: {
      list: LIST,
      verb,
      order,
      read,
      requestFor(index: number, prevResult: unknown) {
        requests.push(prevResult === undefined ? index : [index, prevResult]);
        return { index };
      },
    },
  };
}

async function readAll<Reply>(replies: AsyncIterable<PluginReply<Reply>>): Promise<unknown[]> {
  const read: unknown[] = [];
  for await (const reply of replies) read.push('error' in reply ? `${reply.index} failed` : reply.index);
  return read;
}

describe('callPlugins()', () => {
  test('hands consecutive plugins that join over as one segment', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang']);
    expect(await readAll(callPlugins(callOf('DEL', [2, 1, 0], IGNORED).call, runtime))).toEqual([2, 1, 0]);
    expect(journal).toEqual(['run hang fail noop', 'end']);
  });

  test('makes a plugin that does not join a segment of one', async () => {
    const { journal, runtime } = makeJournal(['noop', 'hang']);
    await readAll(callPlugins(callOf('CHECK', [0, 1, 2], IGNORED).call, runtime));
    expect(journal).toEqual(['run noop', 'end', 'run fail', 'end', 'run hang', 'end']);
  });

  test('gives the first plugin of a segment the result of the segment before it', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail'], { fail: { stdout: '{"ips":[]}' } });
    const { call, requests } = callOf('ADD', [0, 1, 2], parseReply);
    await readAll(callPlugins(call, runtime));
    expect(journal).toEqual(['run noop fail threaded', 'end', 'run hang threaded', 'end']);
    expect(requests).toEqual([0, 1, [2, { ips: [] }]]);
  });

  test('announces each segment before it runs', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail']);
    const { call } = callOf('ADD', [0, 1, 2], parseReply);
    const progress = (last: number) => void journal.push(`up to ${last}`);
    await readAll(callPlugins({ ...call, held: { progress } }, runtime));
    expect(journal.filter(line => line !== 'end')).toEqual([
      'up to 1',
      'run noop fail threaded',
      'up to 2',
      'run hang threaded',
    ]);
  });

  test('calls no plugin when the announcement fails', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang']);
    const held = {
      progress() {
        throw new Error('the disk is full');
      },
    };
    const replies = callPlugins({ ...callOf('ADD', [0, 1, 2], parseReply).call, held }, runtime);
    await expect(readAll(replies)).rejects.toThrow('the disk is full');
    expect([replies.lastBegun, journal]).toEqual([-1, []]);
  });

  test('ends at the first failure of ADD, and knows the last plugin that was called', async () => {
    const { runtime } = makeJournal(['noop', 'fail', 'hang'], { fail: { exitCode: 1 } });
    const replies = callPlugins(callOf('ADD', [0, 1, 2], parseReply).call, runtime);
    expect(await readAll(replies)).toEqual([0, '1 failed']);
    expect(replies.lastBegun).toBe(1);
  });

  test('counts the rest of a segment that goes on after a reply that cannot be used', async () => {
    const { runtime } = makeJournal(['noop', 'fail'], { noop: { more: true } });
    const unusable = () => {
      throw new Error('no result');
    };
    const replies = callPlugins(callOf('ADD', [0, 1, 2], unusable).call, runtime);
    expect(await readAll(replies)).toEqual(['0 failed']);
    expect(replies.lastBegun).toBe(1);
  });

  test('does not count a plugin that could not be started', async () => {
    const { runtime } = makeJournal(['noop', 'fail'], { fail: { spawnError: 'EACCES: permission denied' } });
    const replies = callPlugins(callOf('ADD', [0, 1], parseReply).call, runtime);
    expect(await readAll(replies)).toEqual([0, '1 failed']);
    expect(replies.lastBegun).toBe(0);
  });

  test('continues with a new segment when DEL lost the process of one', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang'], {
      fail: { exitCode: 1, signal: 'SIGKILL' },
    });
    const replies = callPlugins(callOf('DEL', [2, 1, 0], IGNORED).call, runtime);
    expect(await readAll(replies)).toEqual([2, '1 failed', 0]);
    expect(journal).toEqual(['run hang fail noop', 'end', 'run noop', 'end']);
  });

  test('ends the segment when the caller leaves early', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang']);
    for await (const _ of callPlugins(callOf('CHECK', [0, 1, 2], IGNORED).call, runtime)) break;
    expect(journal).toEqual(['run noop fail hang', 'end']);
  });

  test('calls no further plugin after an interruption', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail']);
    const interrupted = { ...runtime, signal: AbortSignal.abort() };
    await expect(callAll(callOf('ADD', [0, 1], parseReply).call, interrupted)).rejects.toThrow(
      'Cannot finish ADD of plugin "noop": it was interrupted',
    );
    expect(journal).toEqual([]);
  });

  test('reports an executable that disappeared before its turn', async () => {
    const { journal, runtime } = makeJournal(['noop', 'missing']);
    const list = listOf('1.1.0', [{ type: 'noop' }, { type: 'missing' }]);
    const call = { ...callOf('ADD', [0, 1], parseReply).call, list };
    await expect(callAll(call, runtime)).rejects.toMatchObject({
      plugin: { type: 'missing', index: 1, verb: 'ADD' },
    });
    expect(journal).toEqual(['run noop threaded', 'end']);
  });

  test('finishes deferred work before the last reply, which fails with it', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang']);
    const finish = async () => {
      journal.push('finish');
      return { exitCode: 1, stdout: '{"code":5,"msg":"Cannot delete device"}', stderr: '' };
    };
    const segments = { ...(runtime.segments as SegmentRunner), finish };
    const errors = await callEach(callOf('DEL', [1, 0], IGNORED).call, { ...runtime, segments });
    expect(errors).toEqual([expect.objectContaining({ code: 5, message: 'Cannot delete device' })]);
    expect(journal).toEqual(['run fail noop', 'end', 'finish']);
  });

  test('reads the output only as the verb does', async () => {
    const { runtime } = makeJournal([], { noop: { stdout: 'not JSON' } });
    expect(await callEach(callOf('DEL', [0], IGNORED).call, runtime)).toEqual([]);
    await expect(callAll(callOf('ADD', [0], parseReply).call, runtime)).rejects.toMatchObject({
      message: expect.stringContaining('Cannot decode output of plugin "noop"'),
      plugin: { type: 'noop', index: 0, executable: `${FIXTURE_PLUGINS}/noop`, durationMs: 1, exitCode: 0 },
    });
  });

  test.each([
    ['EACCES: permission denied', 0, ''],
    ['EMFILE: too many open files', 11, ''],
    [
      'EAGAIN: try again',
      11,
      '; raise the limit of processes (TasksMax= of the service, pids.max of its cgroup)',
    ],
  ])('says why a plugin did not start, and whether to try again: %s', async (spawnError, code, advice) => {
    const { runtime } = makeJournal([], { noop: { spawnError } });
    await expect(callAll(callOf('ADD', [0], IGNORED).call, runtime)).rejects.toMatchObject({
      code,
      message: `Cannot start plugin "noop": ${spawnError}${advice}`,
      details: `${FIXTURE_PLUGINS}/noop`,
    });
  });

  test('keeps the end of a long standard error', async () => {
    const stderr = `${'x'.repeat(10_000)}the end`;
    const { runtime } = makeJournal([], { noop: { exitCode: 2, stderr } });
    await expect(callAll(callOf('ADD', [0], IGNORED).call, runtime)).rejects.toMatchObject({
      plugin: { stderr: stderr.slice(-4096), exitCode: 2 },
    });
  });
});

describe('outcomes of plugins', () => {
  const plugin = { network: 'n', type: 'bridge', index: 1, verb: 'ADD', exitCode: 0, stderr: 'hm' };
  const accept = (printed: unknown, version: '0.2.0' | '0.4.0' | '1.0.0' | '1.1.0' = '1.1.0') =>
    acceptResult(typeof printed === 'string' ? printed : JSON.stringify(printed), version, plugin);

  describe('acceptResult()', () => {
    test('returns the printed result, unknown keys included, in the version of the list', () => {
      const printed = { cniVersion: '1.0.0', ips: [{ address: '10.0.0.2/24', mine: 1 }], more: { deep: [] } };
      expect(accept(printed)).toEqual({ ...printed, cniVersion: '1.1.0' });
      expect(accept(printed, '0.4.0')).toEqual({
        ...printed,
        cniVersion: '0.4.0',
        ips: [{ version: '4', address: '10.0.0.2/24', mine: 1 }],
        dns: {},
      });
    });

    test.each([
      ['missing', {}],
      ['empty', { cniVersion: '' }],
      ['no text', { cniVersion: 5 }],
    ])('uses the version of the list when the one of the result is %s', (_, printed) => {
      expect(accept({ ...printed, ips: [{ version: '4', address: '10.0.0.2/24' }] }, '0.4.0')).toEqual({
        cniVersion: '0.4.0',
        ips: [{ version: '4', address: '10.0.0.2/24' }],
      });
    });

    test.each([
      ['nothing', '', 6, 'it printed no result'],
      ['no JSON', 'up', 6, 'Cannot decode output of plugin "bridge"'],
      ['two documents', '{}{}', 6, 'Cannot decode output of plugin "bridge"'],
      ['an unknown version', { cniVersion: '2.0.0' }, 1, 'unsupported CNI result version "2.0.0"'],
      [
        'a mistake in the layout of its own version',
        { cniVersion: '0.2.0', ip4: { ip: '10.0.0.2' } },
        6,
        'Cannot use result of plugin "bridge": "ip4.ip" must be an address with a prefix length, found "10.0.0.2"',
      ],
      ['null among addresses', { ips: [null] }, 6, '"ips[0]" must be of type object, found null'],
    ])('blames the producer for %s', (_, printed, code, message) => {
      try {
        accept(printed);
        expect.unreachable();
      } catch (error) {
        expect(error).toMatchObject({ code, plugin, message: expect.stringContaining(message) });
      }
    });

    test('blames the plugin also for what the version of the list cannot express', () => {
      expect(() => accept({ cniVersion: '1.0.0', interfaces: [{ name: 'eth0' }] }, '0.2.0')).toThrow(
        expect.objectContaining({
          code: 7,
          plugin,
          message: expect.stringContaining('no valid IP addresses'),
        }),
      );
    });
  });

  const failing = { network: 'n', type: 'bridge', index: 0, verb: 'DEL', exitCode: 1 };
  const failed = new CniError(11, 'try later', { details: 'busy', plugin: failing });

  test('describeLinkError() names the plugin', () => {
    expect(describePluginError(failed)).toBe('bridge DEL: try later (busy)');
    expect(describePluginError(new Error('outer', { cause: new Error('inner') }))).toBe('outer: inner');
  });

  test('withDetails() adds to the details and keeps the rest', () => {
    const error = withDetails(failed, 'and more', [new Error('another')]);
    expect(error).toMatchObject({
      code: 11,
      message: 'try later',
      details: 'busy; and more',
      plugin: failing,
    });
    expect((error as CniError).cause).toBeInstanceOf(AggregateError);
  });

  test('joinErrors() leaves one alone and joins several under the first code', () => {
    expect(joinErrors('Cannot x', [failed])).toBe(failed);
    expect(joinErrors('Cannot x', [failed, new Error('boom')])).toMatchObject({
      code: 11,
      message: 'Cannot x: bridge DEL: try later (busy); boom',
      details: undefined,
    });
    expect(joinErrors('Cannot x', [...'abcdefg'])).toMatchObject({
      message: 'Cannot x: a; b; c; d; e and 2 more',
      details: 'f; g',
    });
  });
});

test('isOwnPlugin() is false for a file that vanishes while it is looked at', () => {
  const runtime = { find: () => '/opt/cni/bin/bridge', pluginDirs: [] };
  const vanished = () => {
    throw Object.assign(new Error('ENOENT: no such file or directory'), { code: 'ENOENT' });
  };
  expect(isOwnPlugin('bridge', runtime, () => true)).toBe(true);
  expect(isOwnPlugin('bridge', runtime, vanished)).toBe(false);
});
