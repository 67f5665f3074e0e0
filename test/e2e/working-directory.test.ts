// Do the executables work wherever they are started: in a directory that is deleted, unmounted, out of reach?
import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { PLUGIN_NAMES } from '../../plugins/registry.ts';
import { AS_ORDINARY_USER, CATENA } from '../helpers/catena.ts';
import { type Finished, type RunOptions, run } from '../helpers/command.ts';
import { startDaemon, startDaemonWith } from '../helpers/daemon.ts';
import { wholeLines } from '../helpers/lines.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { BIN_DIR, copyPlugins } from '../helpers/plugin.ts';
import { writeScript } from '../helpers/script.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

/** Makes a directory, enters it, and deletes it before the program starts. */
const IN_DELETED = ['sh', '-c', 'd=$(mktemp -d) && cd "$d" && rmdir "$d" && exec "$@"', 'sh'];

/** Enters a file system and unmounts it before the program starts. */
const IN_UNMOUNTED = [
  ...['unshare', '--mount', '--', 'sh', '-c'],
  'mount -t tmpfs none /mnt && cd /mnt && umount -l /mnt && exec "$@"',
  'sh',
];

/** Enters a directory whose path is longer than the kernel returns (PATH_MAX). */
const IN_LONG = [
  ...['unshare', '--mount', '--', 'sh', '-c'],
  'n=$(printf %0200d 0); mount -t tmpfs none /mnt && cd -P /mnt && for i in $(seq 30); do mkdir $n && cd -P ./$n; done && exec "$@"',
  'sh',
];

/** Enters a directory that only root may search, and becomes another user. */
const IN_UNREADABLE = [
  ...['unshare', '--mount', '--', 'sh', '-c'],
  'mount -t tmpfs -o mode=0700 none /mnt && cd /mnt && exec "$@"',
  ...['sh', ...AS_ORDINARY_USER],
];

function bridgeIn(lab: Lab, plugins: object[] = []) {
  const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
  const bridge = { type: 'bridge', bridge: 'br0', isGateway: true, ipam };
  return { cniVersion: '1.0.0', name: 'podnet', plugins: [bridge, ...plugins] };
}

/** Calls bridge as a runtime does, from a directory that is gone. */
function callBridge(lab: Lab, command: string, netns: string, conf: object): Promise<Finished> {
  const { plugins, ...list } = bridgeIn(lab);
  const env = {
    ...directories(lab.tmp),
    CNI_COMMAND: command,
    CNI_CONTAINERID: 'c1',
    CNI_NETNS: netns,
    CNI_IFNAME: 'eth0',
    CNI_PATH: BIN_DIR,
  };
  const stdin = JSON.stringify({ ...list, ...plugins[0], ...conf });
  return lab.run(lab.host, [...IN_DELETED, `${BIN_DIR}/bridge`], { env, stdin });
}

describe('in a deleted working directory', () => {
  test.each(PLUGIN_NAMES)('%s answers VERSION', async name => {
    const { exitCode, stdout } = await run([...IN_DELETED, `${BIN_DIR}/${name}`], {
      env: { CNI_COMMAND: 'VERSION' },
      stdin: '{"cniVersion":"1.1.0"}',
    });
    expect([exitCode, JSON.parse(stdout)]).toMatchObject([0, { cniVersion: '1.1.0' }]);
  });

  test.each([...PLUGIN_NAMES, 'catena'])('%s answers with an error object when it fails', async name => {
    const env = { CNI_COMMAND: 'DEL', CNI_CONTAINERID: 'c', CNI_IFNAME: 'eth0', CNI_PATH: BIN_DIR };
    const { exitCode, stdout } = await run([...IN_DELETED, `${BIN_DIR}/${name}`], { env, stdin: '{' });
    expect([exitCode, JSON.parse(stdout)]).toMatchObject([1, { code: 6 }]);
  });

  test('a relative path on the command line is refused by name', async () => {
    const argv = [...IN_DELETED, CATENA, 'add', 'podnet', './pod'];
    const { exitCode, stderr } = await run(argv);
    expect([exitCode, stderr]).toEqual([
      1,
      expect.stringContaining('Cannot find "./pod": it is a relative path, and the working directory'),
    ]);
  });

  test('a relative entry of CNI_PATH finds no plugin', async () => {
    const env = { CNI_COMMAND: 'DEL', CNI_CONTAINERID: 'c', CNI_IFNAME: 'eth0', CNI_PATH: ':.' };
    const conf = { cniVersion: '1.0.0', name: 'n', type: 'ptp', ipam: { type: 'host-local' } };
    const { exitCode, stdout } = await run([...IN_DELETED, `${BIN_DIR}/ptp`], {
      env,
      stdin: JSON.stringify(conf),
    });
    expect([exitCode, stdout]).toEqual([1, expect.stringContaining('Cannot find plugin \\"host-local\\"')]);
  });
});

describeRoot('a working directory without a usable path', () => {
  const makeLab = useLabs();

  test.each([
    ['unmounted', IN_UNMOUNTED],
    ['too long', IN_LONG],
    ['unreadable', IN_UNREADABLE],
  ])('that is %s stops no executable', async (_, before) => {
    const options: RunOptions = { env: { CNI_COMMAND: 'VERSION' }, stdin: '{"cniVersion":"1.1.0"}' };
    for (const name of PLUGIN_NAMES) {
      const { exitCode, stdout } = await run([...before, `${BIN_DIR}/${name}`], options);
      expect([name, exitCode, JSON.parse(stdout)]).toMatchObject([name, 0, { cniVersion: '1.1.0' }]);
    }
    expect(await run([...before, CATENA, '--version'])).toMatchObject({ exitCode: 0 });
  });

  test.each([
    ['without a daemon', false],
    ['with a daemon', true],
  ])('bridge adds and deletes in a deleted directory, %s', async (_, withDaemon) => {
    const lab = await makeLab();
    const container = await lab.container();
    if (withDaemon) await startDaemon(lab);
    const added = await callBridge(lab, 'ADD', container.path, {});
    expect(added).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await lab.ip(container, 'link', 'show', 'eth0')).toHaveLength(1);
    const refused = await callBridge(lab, 'ADD', container.path, { bridge: 7 });
    expect([refused.exitCode, JSON.parse(refused.stdout)]).toMatchObject([1, { code: 7 }]);
    expect(await callBridge(lab, 'DEL', container.path, {})).toMatchObject({ exitCode: 0 });
    expect(await lab.ip(container, 'link', 'show', 'type', 'veth')).toEqual([]);
    expect(fs.readdirSync(`${lab.tmp}/leases/podnet`)).not.toContain('10.88.0.2');
  });

  test.each([
    ['without a daemon', false],
    ['with a daemon', true],
  ])('catena runs a chain with a third-party plugin in a deleted directory, %s', async (_, withDaemon) => {
    const lab = await makeLab();
    const container = await lab.container();
    if (withDaemon) await startDaemon(lab);
    const bin = `${lab.tmp}/bin`;
    fs.mkdirSync(bin);
    writeScript(
      `${bin}/foreign`,
      `cat >/dev/null; [ $CNI_COMMAND = ADD ] && echo '{"cniVersion":"1.0.0"}'; exit 0`,
    );
    const file = `${lab.tmp}/podnet.conflist`;
    fs.writeFileSync(file, JSON.stringify(bridgeIn(lab, [{ type: 'foreign' }])));
    const call = (verb: string) => {
      const args = [verb, 'podnet', container.path, '--file', file, '--bin-dir', BIN_DIR, '--bin-dir', bin];
      const env = directories(lab.tmp);
      return lab.run(lab.host, [...IN_DELETED, CATENA, ...args], { env });
    };
    expect(await call('add')).toMatchObject({ exitCode: 0 });
    expect(await lab.ip(container, 'link', 'show', 'eth0')).toHaveLength(1);
    expect(await call('del')).toMatchObject({ exitCode: 0 });
    expect(await lab.ip(container, 'link', 'show', 'type', 'veth')).toEqual([]);
  });
});

describeRoot('a daemon and its clients', () => {
  const makeLab = useLabs();

  test('find relative directories from where each was started', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    // From "/", where a daemon works, it would be a directory of /tmp as well.
    const state = `tmp/${path.basename(lab.tmp)}-state`;
    const env = { ...directories(lab.tmp), CATENA_STATE_DIR: state, NETCONFPATH: 'net.d' };
    await startDaemonWith(lab, { cwd: lab.tmp, env });
    fs.mkdirSync(`${lab.tmp}/net.d`);
    fs.writeFileSync(`${lab.tmp}/net.d/podnet.conflist`, JSON.stringify(bridgeIn(lab)));
    try {
      for (const verb of ['add', 'del']) {
        const argv = [CATENA, verb, 'podnet', container.path, '--bin-dir', BIN_DIR];
        const done = await lab.run(lab.host, argv, { cwd: lab.tmp, env });
        expect(done).toMatchObject({ exitCode: 0, stderr: '' });
      }
      const events = () => wholeLines(`${lab.tmp}/${state}/history/events`).map(line => JSON.parse(line));
      // The daemon notes a request after its answer.
      await until(() => events().length === 2);
      expect(events()).toMatchObject([{ verb: 'ADD', by: 'daemon' }, { verb: 'DEL' }]);
      expect(fs.existsSync(`/${state}`)).toBe(false);
    } finally {
      fs.rmSync(`/${state}`, { recursive: true, force: true });
    }
  });
});

describeRoot('below a directory that the lab mounts over', () => {
  const makeLab = useLabs();

  test.each(['/tmp', '/run', '/var/lib'])('%s/…, lists are tried, compared and swapped', async covered => {
    const lab = await makeLab();
    const dir = fs.mkdtempSync(`${covered}/catena-covered-`);
    try {
      const bin = `${lab.tmp}/bin`;
      for (const sub of [bin, `${dir}/other`]) {
        fs.mkdirSync(sub);
        copyPlugins(['loopback'], sub);
      }
      const list = { cniVersion: '1.0.0', name: 'here', plugins: [{ type: 'loopback' }] };
      fs.writeFileSync(`${dir}/here.conflist`, JSON.stringify(list));
      const call = (...args: string[]) => {
        const options = { cwd: dir, env: directories(lab.tmp), timeoutMs: 50_000 };
        return lab.run(lab.host, [CATENA, ...args, '--bin-dir', bin], options);
      };
      expect(await call('try', 'here.conflist')).toMatchObject({ exitCode: 0, stderr: '' });
      const compared = await call('compare', 'here.conflist', '--with', 'other', '--scene', 'life');
      expect(compared).toMatchObject({ exitCode: 0, stderr: '' });
      expect(compared.stdout).not.toContain('fails with both');
      const swapped = await call(
        ...[
          'swap',
          'here',
          '--file',
          'here.conflist',
          '--plugin',
          'loopback',
          '--to',
          'other',
          '--scene',
          'life',
          '--yes',
        ],
      );
      expect(swapped).toMatchObject({ exitCode: 0, stderr: '' });
    } finally {
      fs.rmSync(dir, { recursive: true });
    }
  });
});

describe('an existing working directory', () => {
  test('is where relative paths start, whatever PWD says', async () => {
    const dir = fs.mkdtempSync('/tmp/catena-here-');
    try {
      const list = { cniVersion: '1.0.0', name: 'here', plugins: [{ type: 'loopback' }] };
      fs.writeFileSync(path.join(dir, 'a.conflist'), JSON.stringify(list));
      const argv = [CATENA, 'networks', '--versions', 'a.conflist', '--bin-dir', path.relative(dir, BIN_DIR)];
      for (const PWD of [undefined, '/', '/nonexistent', 'a'])
        expect(await run(argv, { cwd: dir, env: { PWD } })).toMatchObject({ exitCode: 0, stderr: '' });
    } finally {
      fs.rmSync(dir, { recursive: true });
    }
  });

  test('is not changed by options for Bun in the environment of the caller', async () => {
    const dir = fs.mkdtempSync('/tmp/catena-here-');
    try {
      fs.writeFileSync(path.join(dir, 'evil.ts'), `require('node:fs').writeFileSync('${dir}/ran', '')`);
      for (const BUN_OPTIONS of ['--cwd=/', `--preload ${dir}/evil.ts`, '--smol', '--no-such-option']) {
        const env = { BUN_OPTIONS, CNI_COMMAND: 'VERSION' };
        const options = { cwd: dir, env, stdin: '{"cniVersion":"1.1.0"}' };
        expect(await run([`${BIN_DIR}/bridge`], options)).toMatchObject({ exitCode: 0, stderr: '' });
      }
      expect(fs.readdirSync(dir)).toEqual(['evil.ts']);
    } finally {
      fs.rmSync(dir, { recursive: true });
    }
  });
});
