// Is a plugin made with `catena init --plugin` a working plugin of a chain?
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { writeChain } from '../helpers/chain.ts';
import { type Finished, run, runOk } from '../helpers/command.ts';
import { withHost } from '../helpers/netns.ts';
import { installPacked, pathOf } from '../helpers/package.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';

let dir: string;
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-new-'));
});
afterAll(() => fs.rmSync(dir, { recursive: true }));

const catena = (...args: string[]): Promise<Finished> =>
  run([path.join(BIN_DIR, 'catena'), ...args], { cwd: dir, env: { CNI_PATH: BIN_DIR } });

describe('catena init --plugin', () => {
  test('creates a directory named after the plugin, and shows the next steps', async () => {
    const { exitCode, stdout, stderr } = await catena('init', '--plugin', 'first');
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(stdout).toStartWith(`${dir}/first:\n  package.json\n`);
    expect(stdout).toEndWith(`Next: cd ${dir}/first && npm install && npm run build\n`);
  });

  test('fills an empty directory, and leaves any other alone', async () => {
    fs.mkdirSync(path.join(dir, 'empty'));
    expect((await catena('init', '--plugin', 'second', '--dir', 'empty')).exitCode).toBe(0);
    const before = fs.readFileSync(path.join(dir, 'empty/package.json'), 'utf8');
    const { exitCode, stderr } = await catena('init', '--plugin', 'third', '--dir', 'empty');
    expect(exitCode).toBe(1);
    expect(stderr).toStartWith(
      `catena: Cannot make a project in "${dir}/empty": it already contains ".gitignore"\n`,
    );
    expect(fs.readFileSync(path.join(dir, 'empty/package.json'), 'utf8')).toBe(before);
    fs.writeFileSync(path.join(dir, 'file'), '');
    expect((await catena('init', '--plugin', 'fourth', '--dir', 'file')).stderr).toContain('ENOTDIR');
  });

  test.each(['../motd', '-x'])('refuses the name %j', async name => {
    const { exitCode, stdout } = await catena('init', '--plugin', '--dir', 'refused', '--', name);
    expect([exitCode, stdout]).toEqual([2, '']);
    expect(fs.existsSync(path.join(dir, 'refused'))).toBe(false);
  });
});

describe('a new plugin', () => {
  let project: string;
  const inProject = (...argv: string[]): Promise<Finished> =>
    run(argv, { cwd: project, env: { PATH: pathOf(project) }, timeoutMs: 60_000 });

  beforeAll(async () => {
    project = path.join(dir, 'motd');
    await runOk([path.join(BIN_DIR, 'catena'), 'init', 'motd', '--plugin', '--dir', project]);
    const { dependencies } = JSON.parse(fs.readFileSync(path.join(project, 'package.json'), 'utf8'));
    // What `npm install` takes: it would look into a registry for anything but a file.
    expect(dependencies['catena-cni']).toMatch(/^file:vendor\/.*\.tgz$/);
    await installPacked(project, path.join(project, dependencies['catena-cni'].slice('file:'.length)));
    await runOk(['bun', 'run', 'build'], { cwd: project, env: { PATH: pathOf(project) }, timeoutMs: 60_000 });
  });

  test('has the right types', async () => {
    expect(await inProject('bun', 'run', 'typecheck')).toMatchObject({ exitCode: 0 });
  });

  test('passes its own tests', async () => {
    const { exitCode, stderr } = await inProject('bun', 'test');
    expect([exitCode, stderr]).toEqual([0, expect.stringMatching(/ 0 fail\n/)]);
  });

  test('describes itself, and supports every version', async () => {
    const executable = path.join(project, 'dist/motd');
    expect((await inProject(executable)).stderr).toStartWith('CNI motd plugin');
    const { stdout } = await run([executable], { env: { CNI_COMMAND: 'VERSION' } });
    expect(JSON.parse(stdout).supportedVersions).toContain('1.1.0');
  });

  test('has a valid example', async () => {
    const args = ['--bin-dir', path.join(project, 'dist'), '--bin-dir', BIN_DIR, '--strict'];
    expect(await catena('validate', path.join(project, 'motd.conflist'), ...args)).toEqual({
      exitCode: 0,
      stdout: 'no problems in 1 file\n',
      stderr: '',
    });
  });

  test('has a schema beside it, by which tools know its options', async () => {
    const dirs = ['--bin-dir', path.join(project, 'dist'), '--bin-dir', BIN_DIR];
    const list = JSON.parse(fs.readFileSync(path.join(project, 'motd.conflist'), 'utf8'));
    list.plugins[1] = { type: 'motd', serch: ['svc.example'], search: 'x' };
    const wrong = path.join(dir, 'wrong.conflist');
    fs.writeFileSync(wrong, JSON.stringify(list, null, 2));
    const { exitCode, stdout } = await catena('validate', wrong, ...dirs);
    expect(exitCode).toBe(1);
    expect(stdout).toContain('key "serch" is not known; did you mean "search"? [unknown-key]');
    expect(stdout).toContain('error: "search" must be of type array, found "x" [shape]');
    const explained = await catena('validate', '--explain', path.join(project, 'motd.conflist'), ...dirs);
    expect(explained.stdout).toContain(
      '2  motd (meta) adds search domains to what earlier plugins said about resolving\n',
    );
    expect(explained.stdout).toContain(
      `search = ["svc.example"]: Domains in which the container's resolver looks for`,
    );
    expect((await catena('validate', '--schema', 'motd', ...dirs)).stdout).toBe(
      fs.readFileSync(path.join(project, 'dist/motd.schema.json'), 'utf8'),
    );
  });

  describeRoot('on the kernel', () => {
    test('breaks no rule of the protocol, whether its configuration is given or not', async () => {
      const executable = path.join(project, 'dist/motd');
      for (const more of [[], ['--from', path.join(project, 'motd.conflist'), '--chained']]) {
        const { stdout } = await catena('conformance', executable, ...more, '--json');
        const { rules } = JSON.parse(stdout) as { rules: { id: string; outcome: string }[] };
        expect(rules.filter(({ outcome }) => outcome === 'broken')).toEqual([]);
        expect(rules.some(({ outcome }) => outcome === 'kept')).toBe(true);
      }
    });

    test('between bridge and tuning completes ADD, CHECK and DEL', async () => {
      await withHost(async lab => {
        const list = JSON.parse(fs.readFileSync(path.join(project, 'motd.conflist'), 'utf8'));
        list.plugins[0].ipam.dataDir = `${lab.tmp}/leases`;
        list.plugins[2].dataDir = `${lab.tmp}/tuning`;
        const binDir = path.join(lab.tmp, 'bin');
        fs.mkdirSync(binDir);
        for (const name of ['bridge', 'host-local', 'tuning'])
          fs.symlinkSync(`${BIN_DIR}/${name}`, `${binDir}/${name}`);
        fs.copyFileSync(path.join(project, 'dist/motd'), `${binDir}/motd`);

        const container = await lab.container();
        const before = await lab.dump(lab.host);
        const chain = writeChain(lab, list);
        const added = await chain.add(container, { binDir });
        expect(added).toMatchObject({ ips: [{ address: '10.99.0.2/24' }], dns: { search: ['svc.example'] } });
        expect((await lab.ip(container, 'link', 'show', 'eth0'))[0]).toMatchObject({ mtu: 1400 });
        expect(await chain.run('check', container, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await chain.run('del', container, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await chain.leases()).toEqual([]);
        // The bridge itself may stay for the next container.
        const { links } = await lab.dump(lab.host);
        expect(links.filter(({ ifname }) => ifname !== 'cni-example')).toEqual(before.links);
      });
    });
  });
});
