// Does the library work under Node, which loads no TypeScript? (the bundle that plugins/build.ts makes)

import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  addNetwork,
  CniError,
  checkNetwork,
  collectGarbage,
  convertResult,
  deleteNetwork,
  listAttachments,
  listPluginVersions,
  loadFile,
  listNetworks,
  networkStatus,
  SPEC_VERSIONS,
  startPlugin,
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
    assert.deepEqual(listAttachments(runtime.cacheDir, 'testnet')[0].result, result);
    await checkNetwork(list, attachment, runtime);
    await networkStatus(list, runtime);
    await collectGarbage(list, { valid: [{ containerID: 'c1', ifname: 'eth0' }] }, runtime);
    await deleteNetwork(list, attachment, runtime);
    assert.deepEqual(listAttachments(runtime.cacheDir, 'testnet'), []);
    const verbs = ['ADD', 'CHECK', 'STATUS', 'GC'].flatMap(verb => [`${verb} one`, `${verb} two`]);
    assert.deepEqual(order(), [...verbs, 'DEL two', 'DEL one']);
  });

  test('undoes a failed ADD and tells which link failed', async () => {
    const list = load(noop('one', { ReportResult: RESULT }), { type: 'fail' });
    await assert.rejects(addNetwork(list, attachment, runtime), error => {
      assert.ok(error instanceof CniError);
      assert.equal(error.link.link, 'fail');
      assert.equal(error.link.exitCode, 7);
      return true;
    });
    assert.deepEqual(order(), ['ADD one', 'DEL one']);
  });

  test('ends a link at its deadline, with its process group', async () => {
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
