// Does the compiled tool do what its users type? (chains of plugins that need no kernel)

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { PLUGIN_NAMES } from '../../plugins/registry.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { type Finished, run } from '../helpers/command.ts';
import { FIXTURE_PLUGINS, makeNoopChain, type NoopChain } from '../helpers/noop-chain.ts';
import { ROOT } from '../helpers/source-tree.ts';

const BIN = path.join(ROOT, 'dist/bin');
const NETNS = '/run/netns/x';
// printf /run/netns/x | sha512sum | cut -c1-20
const CONTAINER_ID = 'cnitool-55e2cecc95014b0f7fc4';
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.1.0.2/24' }] };

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

const confDir = () => path.join(chain.dir, 'net.d');
const stateDir = () => path.join(chain.dir, 'state');
const directories = () => ({
  CATENA_CNI_CACHE_DIR: chain.runtime.cacheDir,
  CATENA_STATE_DIR: stateDir(),
});
const results = () => fs.readdirSync(path.join(chain.runtime.cacheDir, 'results'));

function configure(plugins: readonly JsonObject[], more: JsonObject = {}): string {
  fs.mkdirSync(confDir(), { recursive: true });
  const file = path.join(confDir(), '10-testnet.conflist');
  fs.writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name: 'testnet', ...more, plugins }));
  return file;
}
const twoPlugins = () =>
  configure([
    chain.noop('one', { ReportResult: RESULT }),
    chain.noop('two', {}, { capabilities: { mac: true } }),
  ]);

function catena(args: readonly string[], env: Record<string, string> = {}): Promise<Finished> {
  return run([path.join(BIN, 'catena'), ...args], {
    env: {
      NETCONFPATH: confDir(),
      CNI_PATH: FIXTURE_PLUGINS,
      ...directories(),
      ...env,
    },
  });
}
const DONE = { exitCode: 0, stdout: '', stderr: '' };

describe('catena add, check, del', () => {
  test('attach, check and detach a container', async () => {
    twoPlugins();
    const added = await catena(['add', 'testnet', NETNS]);
    expect(added).toEqual({ ...DONE, stdout: `${JSON.stringify(RESULT, null, 4)}\n` });
    expect(results()).toEqual([`testnet-${CONTAINER_ID}-eth0`]);
    expect(await catena(['check', 'testnet', NETNS])).toEqual(DONE);
    expect(await catena(['del', 'testnet', NETNS])).toEqual(DONE);
    expect(results()).toEqual([]);
    expect(await catena(['del', 'testnet', NETNS])).toEqual(DONE);
    expect(chain.order()).toEqual([
      'ADD one',
      'ADD two',
      'CHECK one',
      'CHECK two',
      'DEL two',
      'DEL one',
      'DEL two',
      'DEL one',
    ]);
  });

  test.each([
    ['its detachment', ['detach', CONTAINER_ID, 'eth0', '--force']],
    ['a GC', ['gc', 'testnet', '--all', '--foreign']],
  ])('of a container whose journal was lost are ended by %s', async (_, argv) => {
    twoPlugins();
    expect((await catena(['add', 'testnet', NETNS])).exitCode).toBe(0);
    fs.rmSync(stateDir(), { recursive: true });
    expect(await catena(argv)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(results()).toEqual([]);
    expect(chain.order()).toContain('DEL one');
  });

  test('read the variables of cnitool', async () => {
    twoPlugins();
    const env = { CNI_IFNAME: 'net1', CNI_ARGS: 'K=v', CAP_ARGS: '{"mac":"0a:00:00:00:00:01","other":1}' };
    expect((await catena(['add', 'testnet', NETNS], env)).exitCode).toBe(0);
    const [, two] = chain.calls();
    expect(two?.env).toMatchObject({ CNI_IFNAME: 'net1', CNI_ARGS: 'K=v', CNI_CONTAINERID: CONTAINER_ID });
    expect(two?.request.runtimeConfig).toEqual({ mac: '0a:00:00:00:00:01' });
  });

  test('have an option for each variable', async () => {
    const file = twoPlugins();
    const elsewhere = path.join(chain.dir, 'elsewhere');
    const options = [
      ...['--file', file, '--bin-dir', '/nonexistent', '--bin-dir', FIXTURE_PLUGINS],
      ...['--cni-cache-dir', elsewhere, '--container-id', 'c9', '--ifname', 'net9', '--args', 'A=b'],
      ...['--cap', '{"mac":"x"}', '--timeout', '20', '--state-dir', path.join(elsewhere, 'state')],
    ];
    const env = { NETCONFPATH: '/nonexistent', CNI_PATH: '/nonexistent', CNI_IFNAME: 'unused' };
    expect((await catena(['add', 'testnet', NETNS, ...options], env)).exitCode).toBe(0);
    expect(chain.calls()[0]?.env).toMatchObject({
      CNI_IFNAME: 'net9',
      CNI_CONTAINERID: 'c9',
      CNI_ARGS: 'A=b',
    });
    expect(fs.readdirSync(path.join(elsewhere, 'results'))).toEqual(['testnet-c9-net9']);
    expect(fs.readdirSync(path.join(elsewhere, 'state'))).toContain('caches');
    expect(fs.existsSync(stateDir())).toBe(false);
  });

  test('warn of keys that have no effect', async () => {
    configure([chain.noop('one', { ReportResult: RESULT }, { prevResult: {} })], { DisableGC: true });
    const { exitCode, stderr } = await catena(['add', 'testnet', NETNS]);
    expect(exitCode).toBe(0);
    expect(stderr.split('\n')).toEqual([
      expect.stringMatching(
        /^catena: warning: .*10-testnet.conflist" line 1, column \d+: key "DisableGC" is ignored/,
      ),
      expect.stringMatching(/^catena: warning: .*key "prevResult" is set by the runtime: it is dropped$/),
      '',
    ]);
  });

  test('pass on the trace of the caller', async () => {
    twoPlugins();
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    await catena(['add', 'testnet', NETNS], { TRACEPARENT: `00-${trace}-00f067aa0ba902b7-01` });
    for (const { env } of chain.calls())
      expect(env.TRACEPARENT).toMatch(new RegExp(`^00-${trace}-[\\da-f]{16}-01$`));
    expect(new Set(chain.calls().map(({ env }) => env.TRACEPARENT)).size).toBe(2);
  });

  test('delete by the record after the file is gone', async () => {
    const file = twoPlugins();
    await catena(['add', 'testnet', NETNS]);
    fs.rmSync(file);
    expect(await catena(['del', 'testnet', NETNS])).toEqual(DONE);
    const again = await catena(['del', 'testnet', NETNS]);
    expect(again.exitCode).toBe(1);
    expect(again.stderr).toContain(`Cannot find network "testnet" in "${confDir()}": found none`);
  });

  test('pass on what plugins print, on standard error only', async () => {
    configure([chain.noop('one', { ReportResult: RESULT, ReportStderr: 'mind the gap' })]);
    const { stdout, stderr } = await catena(['add', 'testnet', NETNS]);
    expect(JSON.parse(stdout)).toEqual(RESULT);
    expect(stderr).toBe('mind the gap\n');
  });
});

describe('catena gc, status, version', () => {
  test('gc keeps the attachments given with --valid', async () => {
    twoPlugins();
    for (const id of ['c1', 'c2']) await catena(['add', 'testnet', NETNS, '--container-id', id]);
    expect(await catena(['gc', 'testnet', '--valid', 'c2/eth0'])).toEqual(DONE);
    expect(results()).toEqual(['testnet-c2-eth0']);
    expect(await catena(['gc', 'testnet', '--all'])).toEqual(DONE);
    expect(results()).toEqual([]);
  });

  test('repair names a note that it cannot read, and fails', async () => {
    twoPlugins();
    await catena(['add', 'testnet', NETNS, '--container-id', 'c1']);
    fs.writeFileSync(path.join(stateDir(), 'unsettled/testnet/c1:eth0'), '{');
    const { exitCode, stderr } = await catena(['repair']);
    expect([exitCode, stderr]).toEqual([1, expect.stringMatching(/^catena: warning: Cannot read note /)]);
  });

  test('gc --dry-run lists what would be deleted and why, and deletes nothing', async () => {
    twoPlugins();
    for (const id of ['c1', 'c2']) await catena(['add', 'testnet', NETNS, '--container-id', id]);
    fs.writeFileSync(path.join(chain.runtime.cacheDir, 'results', 'testnet-c0-eth0'), '{');
    const args = ['gc', 'testnet', '--dry-run', '--valid', 'c2/eth0', '--valid', 'c9/eth0'];
    const { exitCode, stdout, stderr } = await catena(args);
    expect([exitCode, stdout]).toEqual([
      0,
      [
        'network testnet:',
        '  DEL   c1/eth0: no --valid names it',
        '  keep  c2/eth0: --valid names it',
        '  keep  c9/eth0: --valid names it; it is not recorded',
        '  GC    noop: deletes what it finds and is not listed as valid',
        '  GC    noop: deletes what it finds and is not listed as valid',
        '',
      ].join('\n'),
    ]);
    expect(stderr).toMatch(
      /^catena: warning: Cannot read cached result .*testnet-c0-eth0": it is not a JSON object\n$/,
    );
    const json = await catena([...args, '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({
      network: 'testnet',
      delete: [{ containerId: 'c1', ifname: 'eth0' }],
      keep: [{ containerId: 'c2', ifname: 'eth0' }],
      gc: ['noop', 'noop'],
      damaged: [expect.stringContaining('testnet-c0-eth0')],
    });
    expect((await catena(['gc', 'testnet', '--dry-run', '--all'])).stdout).toContain(
      'DEL   c2/eth0: --all keeps none',
    );
    expect(results()).toHaveLength(3);
    expect(chain.order()).toHaveLength(4);
    configure([chain.noop('one')], { disableGC: true });
    expect((await catena(['gc', 'testnet', '--dry-run', '--all'])).stdout).toBe(
      'network testnet: nothing, since the list sets "disableGC"\n',
    );
    const idle = await catena(['gc', 'testnet', '--all']);
    expect([idle.exitCode, idle.stderr]).toEqual([
      0,
      expect.stringContaining('sets "disableGC", so nothing'),
    ]);
    configure([chain.noop('one')], { disableCheck: true });
    const unchecked = await catena(['check', 'testnet', NETNS]);
    expect([unchecked.exitCode, unchecked.stderr]).toEqual([
      0,
      expect.stringContaining('sets "disableCheck", so nothing is looked at'),
    ]);
  });

  test('networks shows which files are wrong, and ls what is attached', async () => {
    const file = twoPlugins();
    fs.writeFileSync(path.join(confDir(), '20-broken.conflist'), '{\n "name": 1');
    fs.symlinkSync('.', path.join(confDir(), '30-dir.conflist'));
    await catena(['add', 'testnet', NETNS]);
    const { exitCode, stdout } = await catena(['networks', '--files-only']);
    expect(exitCode).toBe(0);
    expect(stdout).toContain(`${path.basename(file)}  network testnet, CNI 1.1.0: noop, noop\n`);
    expect(stdout).toContain(
      '20-broken.conflist" line 2, column 11: expected "," or "}", found the end of the text',
    );
    expect(JSON.parse((await catena(['ls', '--json'])).stdout)).toMatchObject({
      attachments: [{ network: 'testnet', containerId: CONTAINER_ID, ifname: 'eth0', netns: NETNS }],
    });
    expect(await catena(['ls', '--unsettled'])).toMatchObject({
      exitCode: 0,
      stdout: 'nothing is unsettled\n',
    });
  });

  test('status reports by its exit code, and names the plugin that is not ready', async () => {
    configure([chain.noop('one'), chain.noop('two', { ReportError: 'no daemon', ReportErrorCode: 50 })]);
    const { exitCode, stderr } = await catena(['status', 'testnet']);
    expect(exitCode).toBe(1);
    expect(stderr).toContain('catena: no daemon\n');
    expect(stderr).toContain('plugin: noop, number 2 of network "testnet", STATUS, exit status 1');
    chain.rescript('two', {});
    expect(await catena(['status', 'testnet'])).toEqual(DONE);
  });

  test('networks --versions asks our own plugins, which are started ahead of their turn', async () => {
    configure(PLUGIN_NAMES.map(type => ({ type })));
    const { stdout, exitCode } = await catena(['networks', '--versions', 'testnet', '--json'], {
      CNI_PATH: BIN,
    });
    const shown = JSON.parse(stdout);
    expect(exitCode).toBe(0);
    expect(shown).toMatchObject({ network: 'testnet', cniVersion: '1.1.0', usable: true });
    expect(shown.plugins.map((plugin: JsonObject) => plugin.type)).toEqual([...PLUGIN_NAMES]);
    for (const { supportedVersions } of shown.plugins) expect(supportedVersions).toContain('1.1.0');
  });

  test('networks --versions fails when a plugin does not support the version of the list', async () => {
    const script = path.join(chain.dir, 'old');
    fs.writeFileSync(script, '#!/bin/sh\necho \'{"cniVersion":"0.4.0","supportedVersions":["0.4.0"]}\'\n', {
      mode: 0o755,
    });
    configure([{ type: 'old' }]);
    const text = await catena(['networks', '--versions', 'testnet'], { CNI_PATH: chain.dir });
    expect(text.stdout).toBe(
      'network testnet, CNI 1.1.0, which not every plugin supports; the highest version of all is 0.4.0\n' +
        'old  -  -  -  -  0.4.0  -  -\n',
    );
    const { stdout, exitCode } = await catena(['networks', '--versions', 'testnet', '--json'], {
      CNI_PATH: chain.dir,
    });
    expect(exitCode).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      usable: false,
      highestCommon: '0.4.0',
      plugins: [{ type: 'old', supportedVersions: ['0.4.0'] }],
    });
  });
});

describe('a failure', () => {
  test('is reported as text, names the plugin, and leaves nothing', async () => {
    configure([chain.noop('one', { ReportResult: RESULT }), { type: 'fail' }]);
    const { exitCode, stdout, stderr } = await catena(['add', 'testnet', NETNS]);
    expect([exitCode, stdout]).toEqual([1, '']);
    expect(stderr).toStartWith(
      'catena: Plugin "fail" failed with "first line\\nsecond line\\nout of cheese": exit status 7\n',
    );
    expect(stderr).toContain('plugin: fail, number 2 of network "testnet", ADD, exit status 7');
    expect(stderr).toContain('    out of cheese\n');
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
  });

  test('is the error object of the specification with --json', async () => {
    configure([chain.noop('one', { ReportError: 'no room', ReportErrorCode: 111 })]);
    const { exitCode, stdout, stderr } = await catena(['add', 'testnet', NETNS, '--json']);
    expect([exitCode, stdout]).toEqual([1, '']);
    expect(JSON.parse(stderr)).toMatchObject({ cniVersion: '1.1.0', code: 111, msg: 'no room' });
  });

  test('has all facts about the failed plugins under one extra key with --json', async () => {
    configure([chain.noop('one', { ReportResult: RESULT }), { type: 'fail' }]);
    const error = JSON.parse((await catena(['add', 'testnet', NETNS, '--json'])).stderr);
    const fact = {
      network: 'testnet',
      type: 'fail',
      index: 1,
      executable: path.join(FIXTURE_PLUGINS, 'fail'),
      exitCode: 7,
      durationMs: expect.any(Number),
      stderr: 'first line\nsecond line\nout of cheese\n',
      code: 0,
      msg: expect.stringContaining('exit status 7'),
    };
    expect(error).toEqual({
      cniVersion: '1.1.0',
      code: 0,
      msg: fact.msg,
      details: expect.stringContaining('undoing it failed too: fail DEL: '),
      catena: {
        failures: [
          { ...fact, verb: 'ADD' },
          { ...fact, verb: 'DEL' },
        ],
      },
    });
  });

  test('of a plugin that prints 100 MB does not take that much memory', async () => {
    configure([{ type: 'garbage' }]);
    const tool = Bun.spawn([path.join(BIN, 'catena'), 'add', 'testnet', NETNS, '--json'], {
      env: {
        PATH: process.env.PATH,
        NETCONFPATH: confDir(),
        CNI_PATH: FIXTURE_PLUGINS,
        GARBAGE: 'huge',
        ...directories(),
      },
      stderr: 'pipe',
    });
    expect(JSON.parse(await tool.stderr.text()).msg).toBe(
      'Plugin "garbage" printed more than 16 MiB: it was killed',
    );
    expect(await tool.exited).toBe(1);
    // About 80 MiB of it is the executable and its runtime.
    expect((tool.resourceUsage()?.maxRSS ?? Infinity) / 1024 ** 2).toBeLessThan(250);
  });

  test('at the deadline of the command names the signal that ended the plugin', async () => {
    configure([{ type: 'hang' }]);
    const env = { HANG_ON: 'ADD' };
    const args = ['add', 'testnet', NETNS, '--json', '--timeout', '50', '--timeout', 'add=0.3'];
    const error = JSON.parse((await catena(args, env)).stderr);
    expect(error.msg).toBe('Plugin "hang" did not finish within 0.3 s: its process group was killed');
    expect(error.catena.failures).toMatchObject([
      { type: 'hang', verb: 'ADD', signal: 'SIGKILL', ended: 'deadline' },
    ]);
  });

  test('ends processes that were started ahead', async () => {
    // Foreign plugins cannot be in BIN: a directory with ours and a failing one.
    const dir = path.join(chain.dir, 'bin');
    fs.mkdirSync(dir);
    fs.symlinkSync(path.join(BIN, 'loopback'), path.join(dir, 'loopback'));
    fs.symlinkSync(path.join(FIXTURE_PLUGINS, 'fail'), path.join(dir, 'fail'));
    configure([{ type: 'fail' }, { type: 'loopback' }]);
    const args = ['add', 'testnet', NETNS, '--container-id', 'started-ahead'];
    expect((await catena(args, { CNI_PATH: dir })).exitCode).toBe(1);
    while (processesOf('started-ahead').length) await Bun.sleep(20);
  });

  test('by a signal ends the running plugin with its children, and undoes the ADD', async () => {
    const pids = path.join(chain.dir, 'pids');
    configure([chain.noop('one', { ReportResult: RESULT }), { type: 'hang' }]);
    const tool = Bun.spawn([path.join(BIN, 'catena'), 'add', 'testnet', NETNS], {
      env: {
        PATH: process.env.PATH,
        NETCONFPATH: confDir(),
        CNI_PATH: FIXTURE_PLUGINS,
        ...directories(),
        HANG_PIDS: pids,
        HANG_ON: 'ADD',
      },
      stderr: 'pipe',
    });
    while (!fs.existsSync(pids) || !fs.readFileSync(pids, 'utf8').endsWith('\n')) await Bun.sleep(20);
    tool.kill('SIGINT');
    const said = await tool.stderr.text();
    expect(said).toStartWith('catena: Cannot finish ADD of plugin "hang": it was interrupted\n');
    expect(await tool.exited).toBe(1);
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
    const alive = fs
      .readFileSync(pids, 'utf8')
      .trim()
      .split(' ')
      .filter(pid => fs.existsSync(`/proc/${pid}`));
    for (const pid of alive) expect(fs.readFileSync(`/proc/${pid}/status`, 'utf8')).toMatch(/^State:\s+Z/m);
  });

  test.each([
    ['broken JSON', '{"name": "testnet", "plugins": [}', 6, 'line 1, column 33: expected a value, found "}"'],
    [
      'an unknown version',
      '{"cniVersion":"4.0.0","name":"testnet","plugins":[{"type":"noop"}]}',
      1,
      'found "4.0.0", supported versions are',
    ],
    [
      'a path as type',
      '{"cniVersion":"1.1.0","name":"testnet","plugins":[{"type":"../noop"}]}',
      7,
      'Cannot find plugin "../noop"',
    ],
    [
      'a missing executable',
      '{"cniVersion":"1.1.0","name":"testnet","plugins":[{"type":"nope"}]}',
      0,
      'Cannot find plugin "nope"',
    ],
  ])('is reported with the code of the specification for %s', async (_, text, code, message) => {
    fs.mkdirSync(confDir(), { recursive: true });
    const file = path.join(confDir(), '10.conflist');
    fs.writeFileSync(file, text);
    const { exitCode, stdout, stderr } = await catena(['add', 'testnet', NETNS, '--file', file, '--json']);
    expect([exitCode, stdout]).toEqual([1, '']);
    const error = JSON.parse(stderr);
    expect(error.code).toBe(code);
    expect(error.msg).toContain(message);
    expect(fs.existsSync(chain.runtime.cacheDir)).toBe(false);
  });
});

describe('the executable', () => {
  test('is the command under any other name', async () => {
    const renamed = path.join(chain.dir, 'renamed');
    fs.symlinkSync(path.join(BIN, 'catena'), renamed);
    expect((await run([renamed, '--version'])).stdout).toStartWith('catena ');
  });
});

function processesOf(containerId: string): string[] {
  return fs.readdirSync('/proc').filter(pid => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const env = fs.readFileSync(`/proc/${pid}/environ`, 'utf8');
      const ended = /^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
      return !ended && env.includes(`CNI_CONTAINERID=${containerId}\0`);
    } catch {
      return false;
    }
  });
}
