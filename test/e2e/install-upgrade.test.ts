// Is a node upgraded from executables from before the front, and back, and are both recognised as ours all the time?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PLUGIN_NAMES } from '../../plugins/registry.ts';
import { fullChain } from '../helpers/chain.ts';
import { type Finished, run } from '../helpers/command.ts';
import { findFrontProblem } from '../helpers/front.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { until } from '../helpers/until.ts';

const NEW = path.join(ROOT, 'dist/bin');
const NAMES = ['catena', ...PLUGIN_NAMES];
const tmp = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-upgrade-'));
afterAll(() => fs.rmSync(tmp, { recursive: true }));

/** An earlier release: another Bun program, under all names. What follows a program in its file does not change what it does. */
const OLD = path.join(tmp, 'old');

function makeOld(): void {
  if (fs.existsSync(OLD)) return;
  fs.mkdirSync(OLD);
  const [first = '', ...others] = NAMES.map(name => path.join(OLD, name));
  fs.copyFileSync(path.join(NEW, 'catena-core'), first);
  fs.appendFileSync(first, 'an earlier release');
  for (const name of others) fs.linkSync(first, name);
}

interface Node {
  readonly lab: Lab;
  readonly bin: string;
  install(from: string, ...options: string[]): Promise<string>;
  /** Runs the command that is installed. */
  catena(...args: string[]): Promise<Finished>;
  /** Installs the earlier release, as it did it itself. */
  installOld(): Promise<void>;
}

function prepare(lab: Lab): Node {
  makeOld();
  const bin = path.join(lab.tmp, 'bin');
  const conf = path.join(lab.tmp, 'net.d');
  const env = directories(lab.tmp);
  const dirs = ['--bin-dir', bin, '--conf-dir', conf];
  const list = path.join(lab.tmp, 'podnet.conflist');
  fs.writeFileSync(list, JSON.stringify(fullChain(lab)));
  const install = async (from: string, ...options: string[]): Promise<string> => {
    const done = await run([path.join(from, 'catena'), 'install', list, ...dirs, ...options], { env });
    expect(done).toMatchObject({ exitCode: 0, stderr: '' });
    return done.stdout;
  };
  return {
    ...{ lab, bin, install },
    catena: (...args) => lab.run(lab.host, [path.join(bin, 'catena'), ...args, ...dirs], { env }),
    async installOld() {
      await install(OLD);
      // It knew nothing of a second program.
      const manifest = path.join(bin, '.catena-install.json');
      const { executables, ...rest } = JSON.parse(fs.readFileSync(manifest, 'utf8'));
      delete executables['catena-core'];
      fs.writeFileSync(manifest, JSON.stringify({ ...rest, executables }));
      fs.rmSync(path.join(bin, 'catena-core'), { force: true });
    },
  };
}

async function startDaemon({ lab, bin }: Node, ...options: string[]) {
  const env = ['env', ...Object.entries(directories(lab.tmp)).map(pair => pair.join('='))];
  const child = lab.start(lab.host, [...env, path.join(bin, 'catena'), 'daemon', ...options]);
  await until(() => fs.existsSync(`${directories(lab.tmp).CATENA_RUN_DIR}/catena.sock`));
  return child;
}

const inodeOf = (dir: string, name: string) => fs.statSync(path.join(dir, name)).ino;
const sizesOf = (dir: string) => [...new Set(NAMES.map(name => fs.statSync(path.join(dir, name)).size))];
const isOneFile = (dir: string) => new Set(NAMES.map(name => inodeOf(dir, name))).size === 1;

/** Which of the installed files were executed while a command ran, as the kernel was asked. */
async function executedBy({ lab, bin }: Node, argv: readonly string[]): Promise<string[]> {
  const log = path.join(lab.tmp, 'execve');
  const trace = ['strace', '-f', '-qq', '-s', '4096', '-e', 'trace=execve', '-o', log, '--'];
  const env = directories(lab.tmp);
  expect(await lab.run(lab.host, [...trace, ...argv], { env, timeoutMs: 60_000 })).toMatchObject({
    exitCode: 0,
  });
  const executed = fs.readFileSync(log, 'utf8').matchAll(/execve\("([^"]+)"/g);
  const files = Array.from(executed, ([, file = '']) => file).filter(file => path.dirname(file) === bin);
  return [...new Set(files.map(file => path.basename(file)))].sort();
}

describeRoot(
  'a node with executables from before the front',
  () => {
    const makeLab = useLabs();

    test('is upgraded to the front, and back, without a file of ours being taken for a foreign one', async () => {
      const node = prepare(await makeLab());
      const { bin } = node;
      await node.installOld();
      expect(isOneFile(bin)).toBe(true);
      expect(sizesOf(bin)).toEqual([fs.statSync(path.join(OLD, 'catena')).size]);

      const upgraded = await node.install(NEW);
      expect(upgraded).toContain('create   catena-core');
      for (const name of NAMES) expect(upgraded).toMatch(new RegExp(`^ {2}update {3}${name}$`, 'm'));
      expect(isOneFile(bin)).toBe(true);
      expect(sizesOf(bin)).toEqual([fs.statSync(path.join(NEW, 'catena')).size]);
      expect(await node.install(NEW)).not.toMatch(/update|create|replace|keep/);

      await node.install(OLD);
      expect(sizesOf(bin)).toEqual([fs.statSync(path.join(OLD, 'catena')).size]);
      await node.install(NEW);
      expect((await node.catena('uninstall')).exitCode).toBe(0);
      expect(fs.readdirSync(bin)).toEqual([]);
    });

    test('is upgraded by a release without a front, too, and cleaned by either', async () => {
      const node = prepare(await makeLab());
      await node.install(NEW);
      const downgraded = await node.install(OLD);
      expect(downgraded).not.toMatch(/keep|replace/);
      expect(inodeOf(node.bin, 'catena-core')).toBe(inodeOf(node.bin, 'bridge'));
      expect((await node.catena('uninstall')).exitCode).toBe(0);
      expect(fs.readdirSync(node.bin)).toEqual([]);
    });

    test.each([
      ['fronts', NEW, undefined, ['catena', 'catena-core']],
      ['the Bun program under all names', OLD, undefined, ['catena']],
      // Nothing of that is the program that runs, so each plugin is a process of its own.
      ['another release', OLD, NEW, ['bandwidth', 'bridge', 'portmap', 'tuning']],
    ])('runs a chain of %s by the files that this takes', async (_, installed, command, files) => {
      const node = prepare(await makeLab());
      await node.install(installed);
      const container = await node.lab.container();
      const run = (verb: string) =>
        executedBy(node, [
          ...[path.join(command ?? node.bin, 'catena'), verb, 'podnet', container.path],
          ...['--container-id', container.id, '--bin-dir', node.bin],
          ...['--conf-dir', path.join(node.lab.tmp, 'net.d')],
        ]);
      expect(await run('add')).toEqual(files);
      expect(await run('del')).toEqual(files);
    });

    test('has one program by every name, so swap has nothing to do', async () => {
      const node = prepare(await makeLab());
      await node.install(OLD);
      const swap = (...args: string[]) =>
        node.catena('swap', 'podnet', '--plugin', 'tuning', '--yes', ...args);
      expect((await swap('--to', OLD)).stdout).toContain('is already that file');
      await node.install(NEW);
      expect((await swap('--to', NEW)).stdout).toContain('is already that file');
      expect((await swap('--to', path.join(NEW, 'catena-core'))).stdout).toContain('is already that file');
    });

    test('has a daemon that hands over to each build that is installed, with fronts or without', async () => {
      const node = prepare(await makeLab());
      const start = () => startDaemon(node);
      const examine = async () => {
        const { stdout } = await node.catena('doctor', '--all');
        return stdout
          .split('\n')
          .filter(line => /process .*(daemon|executable|serves)|ask no daemon/.test(line));
      };
      const serves = [expect.stringContaining('serves the calls of this node')];
      const isAsked = (build: string) =>
        build === NEW ? serves : [expect.stringContaining('built without a C compiler')];

      await node.installOld();
      const old = await start();
      expect(await examine()).toEqual(isAsked(OLD));
      for (const build of [NEW, OLD]) {
        await node.install(build);
        expect(await examine()).toEqual(isAsked(build));
      }
      // It ends as one that was replaced.
      expect(await old.exited).toBe(3);
    });

    test('uninstall ends the daemon that would put our plugins back into the list of before', async () => {
      const node = prepare(await makeLab());
      const [list, config] = ['net.d/10-podnet.conflist', 'config.json'].map(one =>
        path.join(node.lab.tmp, one),
      ) as [string, string];
      const plugins = [{ type: 'bridge', bridge: 'br9' }];
      const before = JSON.stringify({ cniVersion: '1.0.0', name: 'podnet', plugins });
      fs.mkdirSync(path.dirname(list));
      fs.writeFileSync(list, before);
      fs.writeFileSync(config, JSON.stringify({ lists: 'restore' }));
      await node.install(NEW, '--force');
      const daemon = await startDaemon(node, '--config', config, '--conf-dir', path.dirname(list));
      const ended = expect.stringContaining(`remove   daemon, process ${daemon.pid}\n`);
      expect(await node.catena('uninstall', '--dry-run')).toMatchObject({ exitCode: 0, stdout: ended });
      expect(daemon.exitCode).toBe(null);
      expect(await node.catena('uninstall')).toMatchObject({ exitCode: 0, stdout: ended });
      expect(await daemon.exited).toBe(0);
      expect(fs.readFileSync(list, 'utf8')).toBe(before);
    });
  },
  findFrontProblem(),
  requires('strace'),
);
