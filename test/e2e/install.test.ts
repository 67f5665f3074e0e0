// Does `catena install` put a node in order, and `catena uninstall` back as it was?
import { afterEach, beforeEach, expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PLUGIN_NAMES } from '../../plugins/registry.ts';
import { run } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeNeeding, requires } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

setDefaultTimeout(deadline(120_000));

const LIST = join(ROOT, 'conflists/bridge-full.conflist');
let root: string;
beforeEach(() => {
  root = fs.mkdtempSync(join(tmpdir(), 'cat-install-'));
  fs.mkdirSync(join(root, 'net.d'));
  fs.writeFileSync(
    join(root, 'net.d/05-lo.conflist'),
    JSON.stringify({ cniVersion: '1.0.0', name: 'lo', plugins: [{ type: 'loopback' }] }),
  );
});
afterEach(() => fs.rmSync(root, { recursive: true }));

const catena = (verb: string, ...args: string[]) =>
  run([
    `${BIN_DIR}/catena`,
    verb,
    ...args,
    '--bin-dir',
    join(root, 'bin'),
    '--conf-dir',
    join(root, 'net.d'),
    ...(verb === 'install' ? ['--etc', join(root, 'etc')] : []),
  ]);
const names = (dir: string) => fs.readdirSync(join(root, dir)).sort();

test('catena install suggests a name for one of no plugin', async () => {
  const { exitCode, stderr } = await catena('install', LIST, '--plugin', 'brigde');
  expect([exitCode, stderr]).toEqual([
    2,
    expect.stringContaining('Cannot install "brigde": no such plugin; did you mean "bridge"?'),
  ]);
});

test('catena install installs every plugin and the list, and reports that another list takes precedence', async () => {
  const { exitCode, stdout, stderr } = await catena('install', LIST);
  expect([exitCode, stderr]).toEqual([0, '']);
  expect(names('bin')).toEqual([
    '.catena-install.json',
    ...[...PLUGIN_NAMES, 'catena', 'catena-core'].sort(),
  ]);
  expect(fs.readFileSync(join(root, 'net.d/10-bridge-full.conflist'), 'utf8')).toBe(
    fs.readFileSync(LIST, 'utf8'),
  );
  expect(stdout).toContain('containerd  does not use it: "05-lo.conflist" is used');
  expect(stdout).toContain('--as-default gives the list a name that sorts first');
  expect(stdout).toContain('\ndaemon: none chosen; with --daemon on-demand calls start one');
  // The last line is what a person must still do.
  expect(stdout).toEndWith(`\n"catena" is not in PATH: ln -s ${root}/bin/catena /usr/local/bin/catena\n`);
  const called = await run([join(root, 'bin/bridge')], { env: { CNI_COMMAND: 'VERSION' } });
  expect(JSON.parse(called.stdout)).toMatchObject({ cniVersion: '1.1.0' });
});

test('catena install of one plugin does not tell how to call what it has not installed', async () => {
  const { exitCode, stdout } = await catena('install', '--plugin', 'multus', '--dry-run');
  expect([exitCode, stdout]).toEqual([0, expect.stringMatching(/ create +multus\n$/)]);
});

test('the history has what was installed and uninstalled, and not what was only shown', async () => {
  const env = { CATENA_STATE_DIR: join(root, 'state'), CATENA_RUN_DIR: join(root, 'run') };
  const places = ['--bin-dir', join(root, 'bin'), '--conf-dir', join(root, 'net.d')];
  const install = [`${BIN_DIR}/catena`, 'install', LIST, ...places, '--etc', join(root, 'etc')];
  for (const argv of [[...install, '--dry-run'], install, [`${BIN_DIR}/catena`, 'uninstall', ...places]])
    expect(await run(argv, { env })).toMatchObject({ exitCode: 0 });
  const { stdout } = await run([`${BIN_DIR}/catena`, 'log', '--json'], { env });
  expect(JSON.parse(stdout).items).toMatchObject([
    { what: 'INSTALL', by: 'command', code: 0, source: 'history' },
    { what: 'UNINSTALL', by: 'command', code: 0, source: 'history' },
  ]);
});

test('catena install --account writes a kubeconfig beside the list, and uninstall removes it', async () => {
  const account = join(root, 'account');
  fs.mkdirSync(account);
  for (const name of ['ca.crt', 'token']) fs.writeFileSync(join(account, name), name);
  const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };
  const install = () =>
    run(
      [
        ...[
          `${BIN_DIR}/catena`,
          'install',
          '--bin-dir',
          join(root, 'bin'),
          '--conf-dir',
          join(root, 'net.d'),
        ],
        ...['--account', account, '--account-on-host', '/var/lib/kubelet/account'],
      ],
      { env },
    );
  const { exitCode, stdout, stderr } = await install();
  expect([exitCode, stderr]).toEqual([0, '']);
  expect(stdout).toContain('create   catena.d/kubeconfig');
  expect(fs.readFileSync(join(root, 'net.d/catena.d/kubeconfig'), 'utf8')).toContain(
    '"/var/lib/kubelet/account/token"',
  );
  expect((await install()).stdout).toContain('same     catena.d/kubeconfig');
  expect((await catena('uninstall')).exitCode).toBe(0);
  expect([names('bin'), names('net.d')]).toEqual([[], ['05-lo.conflist']]);
});

test('catena install --as-default takes precedence, says why, and uninstall reverts all of it', async () => {
  const installed = await catena('install', LIST, '--as-default', '--json');
  expect(installed.exitCode).toBe(0);
  const { ok, picks, reason } = JSON.parse(installed.stdout);
  expect(ok).toBe(true);
  expect(picks.map(({ taken }: { taken: boolean }) => taken)).toEqual([true, true]);
  expect(reason).toContain('"05-bridge-full.conflist", since runtimes use the first file by name');
  const { exitCode, stderr } = await catena('uninstall');
  expect([exitCode, stderr]).toEqual([0, '']);
  expect([names('bin'), names('net.d')]).toEqual([[], ['05-lo.conflist']]);
});

test('catena install --as-default fails where the list cannot work', async () => {
  const list = join(root, 'other.conflist');
  fs.writeFileSync(list, JSON.stringify({ cniVersion: '1.0.0', name: 'x', plugins: [{ type: 'ovs' }] }));
  const { exitCode, stdout } = await catena('install', list, '--as-default', '--plugin', 'loopback');
  expect(exitCode).toBe(1);
  expect(stdout).toMatch(/^containerd {2}does not use it: .*pods will fail: .*"ovs"/m);
});

test('catena install --dry-run touches nothing, and predicts the outcome', async () => {
  const { exitCode, stdout } = await catena('install', LIST, '--as-default', '--dry-run');
  expect(exitCode).toBe(0);
  expect(stdout).toMatch(/^ {2}create {3}bridge$/m);
  expect(stdout).toContain('containerd  uses it: it is the first by name');
  expect([fs.existsSync(join(root, 'bin')), names('net.d')]).toEqual([false, ['05-lo.conflist']]);
});

test('catena install --dry-run of a list under another name does not count on the one that goes', async () => {
  fs.rmSync(join(root, 'net.d/05-lo.conflist'));
  await catena('install', LIST);
  const { stdout } = await catena('install', LIST, '--conf-name', '20-later.conflist', '--dry-run');
  expect(stdout).toContain('retire   10-bridge-full.conflist');
  expect(stdout).toMatch(/^containerd {2}uses it/m);
});

test('catena install keeps third-party files, and fails when one of them is the list', async () => {
  fs.mkdirSync(join(root, 'bin'));
  fs.writeFileSync(join(root, 'bin/bridge'), 'foreign');
  fs.writeFileSync(join(root, 'net.d/10-bridge-full.conflist'), '{}');
  const { exitCode, stdout } = await catena('install', LIST);
  expect(exitCode).toBe(1);
  expect(stdout).toContain('keep     bridge: it belongs to another package; --force replaces it');
  expect(fs.readFileSync(join(root, 'bin/bridge'), 'utf8')).toBe('foreign');
  await catena('uninstall');
  expect(names('bin')).toEqual(['bridge']);
});

describeNeeding(
  'systemd',
  () => {
    test('accepts the units', async () => {
      expect((await catena('install', '--daemon', 'systemd')).exitCode).toBe(0);
      const units = ['catena.socket', 'catena.service'].map(name => join(root, 'etc/systemd/system', name));
      const checked = await run(['systemd-analyze', 'verify', '--man=no', ...units]);
      // Units of the machine that it is ordered after may have their own faults.
      const own = checked.stderr.split('\n').filter(line => line.includes('catena'));
      expect({ exitCode: checked.exitCode, own }).toEqual({ exitCode: 0, own: [] });
    });
  },
  requires('systemd-analyze'),
);

test('catena install --daemon lays down what starts the daemon, keeps to it, and uninstall removes it', async () => {
  const units = () => (fs.existsSync(join(root, 'etc')) ? names('etc/systemd/system') : []);
  const onDemand = () => fs.existsSync(join(root, 'bin/catena-core.on-demand'));
  const first = await catena('install', '--daemon', 'systemd');
  expect(first).toMatchObject({ exitCode: 0, stderr: '' });
  expect(first.stdout).toContain('create   catena.socket\n  create   catena.service\n');
  expect(first.stdout).toContain('which systemd does not read here');
  expect([units(), onDemand()]).toEqual([['catena.service', 'catena.socket'], false]);
  // Without the option it stays as it is.
  expect((await catena('install')).stdout).toContain('same     catena.service');
  const service = join(root, 'etc/systemd/system/catena.service');
  fs.appendFileSync(service, '# changed by hand\n');
  expect((await catena('install')).stdout).toContain(
    'keep     catena.service: it was changed after it was installed',
  );
  expect((await catena('install', '--daemon', 'systemd', '--force')).stdout).toContain(
    'replace  catena.service',
  );
  expect((await catena('install', '--daemon', 'on-demand')).stdout).toContain('retire   catena.service');
  expect([units().filter(name => !name.endsWith('.edited')), onDemand()]).toEqual([[], true]);
  expect((await catena('install', '--daemon', 'none')).exitCode).toBe(0);
  expect(onDemand()).toBe(false);
  // One that was changed starts nothing either, and is not lost.
  expect((await catena('install', '--daemon', 'on-demand')).exitCode).toBe(0);
  fs.appendFileSync(join(root, 'bin/catena-core.on-demand'), '# changed by hand\n');
  const retired = await catena('install', '--daemon', 'none');
  expect(retired.stdout).toContain('is kept with the suffix ".edited"');
  const kept = join(root, 'bin/catena-core.on-demand.edited');
  expect([onDemand(), fs.readFileSync(kept, 'utf8')]).toEqual([
    false,
    expect.stringContaining('changed by hand'),
  ]);
  expect((await catena('install', '--daemon', 'runit')).exitCode).toBe(2);
  expect((await catena('install', '--daemon', 'on-demand')).exitCode).toBe(0);
  expect((await catena('uninstall')).exitCode).toBe(0);
  // It does not come back as what was there before.
  expect(names('bin')).toEqual(['catena-core.on-demand.edited']);
});

const mayMount = run(['unshare', '--mount', 'true']).then(({ exitCode }) => exitCode === 0);

test.skipIf(!(await mayMount))(
  'catena install --daemon systemd enables the units where systemd runs (needs a mount namespace)',
  async () => {
    // A host of its own: /etc and /run are empty, and systemctl notes how it is called.
    const fake = join(root, 'fake');
    fs.mkdirSync(fake);
    const log = join(root, 'systemctl.log');
    fs.writeFileSync(
      join(fake, 'systemctl'),
      `#!/bin/sh\necho "$@ $(ls /etc/systemd/system | tr '\\n' ' ')" >> ${log}\n`,
      { mode: 0o755 },
    );
    const places = `--bin-dir ${join(root, 'bin')} --conf-dir ${join(root, 'net.d')}`;
    const steps = [
      'mount -t tmpfs none /run && mkdir -p /run/systemd/system && mount -t tmpfs none /etc',
      `${BIN_DIR}/catena install --daemon systemd ${places}`,
      `${BIN_DIR}/catena uninstall ${places}`,
    ];
    const done = await run(
      ['unshare', '--mount', 'sh', '-c', `export PATH=${fake}:$PATH; ${steps.join(' && ')}`],
      { timeoutMs: 60_000 },
    );
    expect(done).toMatchObject({ exitCode: 0, stderr: '' });
    const both = 'catena.service catena.socket';
    expect(
      fs
        .readFileSync(log, 'utf8')
        .split('\n')
        .map(line => line.trimEnd()),
    ).toEqual([
      `daemon-reload ${both}`,
      `enable --now catena.socket ${both}`,
      `try-restart catena.service ${both}`,
      `disable --now catena.socket catena.service ${both}`,
      'daemon-reload',
      '',
    ]);
  },
);

test.skipIf(!(await mayMount))(
  'catena install on a full disk leaves no part of an executable there (needs a mount namespace)',
  async () => {
    const bin = join(root, 'bin');
    fs.mkdirSync(bin);
    const install = `${BIN_DIR}/catena install --bin-dir ${bin} --conf-dir ${join(root, 'net.d')}`;
    const line = `mount -t tmpfs -o size=1m none ${bin}; ${install}; ls -A ${bin}`;
    const { stdout, stderr } = await run(['unshare', '--mount', 'sh', '-c', line], { timeoutMs: 60_000 });
    expect(stderr).toContain('ENOSPC');
    expect(stdout).toBe('.catena-install.json\n');
  },
);

test('catena install --print prints the units', async () => {
  const { exitCode, stdout } = await catena('install', '--print', 'systemd');
  expect([exitCode, stdout]).toEqual([0, expect.stringContaining(`ExecStart=${root}/bin/catena daemon`)]);
  expect((await catena('install', '--print', 'rpm')).exitCode).toBe(2);
});
