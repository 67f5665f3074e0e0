// Does the library work under Node, which loads no TypeScript? (the bundle that the build makes)

import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  addNetwork,
  addPlugin,
  CniError,
  checkNetwork,
  checkPlugin,
  collectGarbage,
  convertResult,
  deleteNetwork,
  deletePlugin,
  findCachedResult,
  findNetworkOfAdd,
  listAttachments,
  listNetworks,
  listPluginVersions,
  loadFile,
  loadNetwork,
  networkStatus,
  parsePlugin,
  planGarbage,
  pluginVersion,
  recover,
  repair,
  SPEC_VERSIONS,
  startPlugin,
  validateNetwork,
} from '../../dist/lib/index.js';

const PLUGINS = fileURLToPath(new URL('../fixtures/plugins', import.meta.url));
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.1.0.2/24' }] };
const attachment = { containerId: 'c1', netns: '/run/netns/none', ifname: 'eth0' };

let dir;
let runtime;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-node-'));
  runtime = { pluginDirs: [PLUGINS], cacheDir: path.join(dir, 'cache') };
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

function load(...plugins) {
  const file = path.join(dir, '10.conflist');
  fs.writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name: 'testnet', plugins }));
  return loadFile(file);
}

function noop(label, script) {
  const debugFile = path.join(dir, `${label}.json`);
  fs.writeFileSync(debugFile, JSON.stringify(script));
  return { type: 'noop', label, debugFile, commandLog: path.join(dir, 'log') };
}

function order() {
  const lines = fs.readFileSync(path.join(dir, 'log'), 'utf8').trimEnd().split('\n');
  return lines.map(line => JSON.parse(line)).map(({ command, request }) => `${command} ${request.label}`);
}

describe('the library under Node', () => {
  test('runs a network through every verb', async () => {
    const list = load(noop('one', { ReportResult: RESULT }), noop('two', { ReportResult: 'INJECT-DNS' }));
    const result = await addNetwork(list, attachment, runtime);
    assert.deepEqual(result, { ...RESULT, dns: { nameservers: ['1.2.3.4'] } });
    assert.deepEqual(listAttachments({ cacheDir: runtime.cacheDir }).attachments[0].result, result);
    assert.deepEqual(findCachedResult(list, attachment, runtime), result);
    assert.deepEqual(findNetworkOfAdd({ network: 'testnet', ...attachment }, runtime), list);
    assert.equal(planGarbage(list, { all: true }, runtime).stale.length, 1);
    await checkNetwork(list, attachment, runtime);
    await networkStatus(list, runtime);
    await collectGarbage(list, { valid: [{ containerID: 'c1', ifname: 'eth0' }] }, runtime);
    await deleteNetwork(list, attachment, runtime);
    assert.deepEqual(listAttachments({ cacheDir: runtime.cacheDir }), { attachments: [], damaged: [] });
    const verbs = ['ADD', 'CHECK', 'STATUS', 'GC'].flatMap(verb => [`${verb} one`, `${verb} two`]);
    assert.deepEqual(order(), [...verbs, 'DEL two', 'DEL one']);
  });

  test('runs a single plugin, and any function in place of a process', async () => {
    const plugin = parsePlugin(JSON.stringify({ name: 'single', cniVersion: '1.1.0', type: 'mine' }));
    const verbs = [];
    const inProcess = {
      ...runtime,
      find: type => `/nowhere/${type}`,
      exec({ path, env, request }) {
        verbs.push(`${env.CNI_COMMAND} ${path} ${JSON.parse(request).name}`);
        return { stdout: JSON.stringify(RESULT) };
      },
    };
    assert.deepEqual(await addPlugin(plugin, attachment, inProcess), RESULT);
    await checkPlugin(plugin, attachment, inProcess);
    await deletePlugin(plugin, attachment, inProcess);
    assert.deepEqual(
      verbs,
      ['ADD', 'CHECK', 'DEL'].map(verb => `${verb} /nowhere/mine single`),
    );
  });

  test('gives every link a span of the trace, and does one operation after the other', async () => {
    const list = load(noop('one', {}));
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const spans = [];
    const traced = {
      ...runtime,
      env: { ...process.env, TRACEPARENT: `00-${trace}-00f067aa0ba902b7-01` },
      onPlugin: ({ span }) => spans.push(span),
    };
    await Promise.all([addNetwork(list, attachment, traced), deleteNetwork(list, attachment, traced)]);
    assert.deepEqual(order(), ['ADD one', 'DEL one']);
    assert.deepEqual(
      spans.map(({ traceId }) => traceId),
      [trace, trace],
    );
    assert.notEqual(spans[0].spanId, spans[1].spanId);
  });

  test('bounds what a link prints, and does not wait for a grandchild that holds its output', async () => {
    const started = (name, env) =>
      startPlugin({
        path: path.join(PLUGINS, name),
        env: { PATH: process.env.PATH, ...env },
        deadlineMs: 30_000,
      });
    const huge = await started('garbage', { GARBAGE: 'huge' }).send('{}');
    assert.deepEqual([huge.ended, huge.stdout.length], ['output', 16 * 1024 * 1024]);
    const pids = path.join(dir, 'pids');
    const held = await started('hang', { HANG_PIDS: pids, HANG_DETACH: '1' }).send('{}');
    assert.equal(held.exitCode, 0);
    assert.equal(JSON.parse(held.stdout).cniVersion, '1.1.0');
    process.kill(Number(fs.readFileSync(pids, 'utf8').trim().split(' ')[1]), 'SIGKILL');
  });

  test('undoes a failed ADD and names the plugin that failed', async () => {
    const list = load(noop('one', { ReportResult: RESULT }), { type: 'fail' });
    await assert.rejects(addNetwork(list, attachment, runtime), error => {
      assert.ok(error instanceof CniError);
      assert.equal(error.plugin.type, 'fail');
      assert.equal(error.plugin.exitCode, 7);
      return true;
    });
    assert.deepEqual(order(), ['ADD one', 'DEL one']);
  });

  test('ends a plugin at its deadline, with its process group', async () => {
    const pids = path.join(dir, 'pids');
    const env = { PATH: process.env.PATH, HANG_PIDS: pids };
    const started = startPlugin({ path: path.join(PLUGINS, 'hang'), env, deadlineMs: 300 });
    const outcome = await started.send('{}');
    assert.equal(outcome.ended, 'deadline');
    for (const pid of fs.readFileSync(pids, 'utf8').trim().split(' ')) {
      while (isRunning(pid)) await new Promise(resolve => setTimeout(resolve, 20));
    }
  });

  test('reports an executable that does not start', async () => {
    fs.writeFileSync(path.join(dir, 'plain'), '', { mode: 0o644 });
    const list = load({ type: 'plain' });
    await assert.rejects(addNetwork(list, attachment, { ...runtime, pluginDirs: [dir] }), {
      message: /^Cannot start plugin "plain": EACCES/,
    });
  });

  test('reads configurations, with line and column of mistakes', () => {
    fs.writeFileSync(path.join(dir, '10.conflist'), '{\n  "name" 1\n}');
    const { networks, diagnostics } = listNetworks(dir);
    assert.deepEqual(networks, []);
    assert.equal(diagnostics[0].line, 2);
    assert.equal(diagnostics[0].column, 10);
  });

  test('asks plugins for their versions and converts results', async () => {
    const [{ supportedVersions }] = await listPluginVersions(load({ type: 'noop' }), runtime);
    assert.deepEqual(supportedVersions, [...SPEC_VERSIONS]);
    assert.deepEqual((await pluginVersion('noop', runtime)).supportedVersions, [...SPEC_VERSIONS]);
    assert.equal((await validateNetwork(loadNetwork(dir, 'testnet'), runtime)).highestCommon, '1.1.0');
    assert.deepEqual(convertResult(RESULT, '0.4.0').ips, [{ version: '4', address: '10.1.0.2/24' }]);
  });
});

function isRunning(pid) {
  try {
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

describe('the journal', () => {
  test('records, recovers and repairs', async () => {
    const network = load(noop('one', { ReportResult: RESULT }), noop('two', {}));
    const journal = { ...runtime, stateDir: path.join(dir, 'state') };
    await addNetwork(network, attachment, journal);
    const listed = () => listAttachments({ journals: [journal.stateDir] });
    assert.equal(listed().attachments[0].phase, 'attached');
    const { attachments } = await repair({}, journal);
    assert.equal(attachments[0].state, 'sound');
    const later = { ...journal, env: { ...process.env, CATENA_BOOT_ID: 'later' } };
    assert.equal((await recover({ all: true }, later)).length, 1);
    assert.deepEqual(listed(), { attachments: [], damaged: [] });
    assert.deepEqual(order(), ['ADD one', 'ADD two', 'CHECK one', 'CHECK two', 'DEL two', 'DEL one']);
  });
});
