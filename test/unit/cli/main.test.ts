import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { COMMANDS } from '../../../src/cli/commands.ts';
import { type Finished, run } from '../../helpers/command.ts';
import { ROOT } from '../../helpers/source-tree.ts';

let dir: string;
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-main-'));
});
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** A process of its own, since the tool writes to descriptors. */
const catena = (...args: string[]): Promise<Finished> => catenaWith({}, ...args);

const catenaWith = (env: Readonly<Record<string, string>>, ...args: string[]): Promise<Finished> =>
  run([process.execPath, path.join(ROOT, 'plugins/main.ts'), ...args], {
    env: { NETCONFPATH: dir, CNI_PATH: dir, CATENA_CNI_CACHE_DIR: dir, ...env },
  });

describe('runMain()', () => {
  test.each([['--help'], ['-h'], ['help']])('%s shows every command', async flag => {
    const { exitCode, stdout, stderr } = await catena(flag);
    expect([exitCode, stderr]).toEqual([0, '']);
    const words = stdout.replace(/\s+/g, ' ');
    for (const { name, summary } of COMMANDS) expect(words).toContain(` ${name} ${summary}`);
  });

  test('status of a list that has no STATUS fails without one of its plugins', async () => {
    const ipam = { type: 'host-local' };
    const list = { cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'bridge', ipam }] };
    fs.writeFileSync(`${dir}/net.conflist`, JSON.stringify(list));
    fs.writeFileSync(`${dir}/bridge`, '', { mode: 0o755 });
    const missing = await catena('status', 'net');
    expect(missing.exitCode).not.toBe(0);
    expect(missing.stdout + missing.stderr).toContain('Cannot find plugin "host-local"');
    fs.writeFileSync(`${dir}/host-local`, '', { mode: 0o755 });
    // No runtime can start an empty file.
    const refused = await catena('status', 'net');
    expect(refused.exitCode).not.toBe(0);
    expect(refused.stdout + refused.stderr).toContain('bridge');
    const answer = `#!/bin/sh\necho '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'\n`;
    fs.writeFileSync(`${dir}/bridge`, answer);
    expect(await catena('status', 'net')).toMatchObject({ exitCode: 0, stdout: '' });
    for (const name of ['net.conflist', 'bridge', 'host-local']) fs.rmSync(`${dir}/${name}`);
  });

  test('errors fit the terminal, and are one line for programs', async () => {
    const line = ['status', 'no-such-network'];
    const long = await catena(...line);
    for (const COLUMNS of ['60', '120']) {
      const { exitCode, stderr } = await catenaWith({ COLUMNS }, ...line);
      expect(exitCode).toBe(long.exitCode);
      expect(stderr.split(/\s+/)).toEqual(long.stderr.split(/\s+/));
      for (const one of stderr.split('\n')) expect(one.length).toBeLessThanOrEqual(Number(COLUMNS));
    }
    const { stderr } = await catenaWith({ COLUMNS: '60' }, ...line, '--json');
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(JSON.parse(stderr)).toHaveProperty('msg');
  });

  test('--version shows the version of the package', async () => {
    const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
    expect(await catena('--version')).toEqual({ exitCode: 0, stdout: `catena ${version}\n`, stderr: '' });
  });

  test('help <command> and <command> --help show arguments and options', async () => {
    const shown = await catena('help', 'gc');
    expect(shown.stdout).toStartWith('Usage: catena gc <network> | --gone [<network>] [options]\n');
    expect(shown.stdout).toContain('--valid <id>/<ifname>');
    expect(await catena('gc', '--help')).toEqual(shown);
  });

  test.each([
    ['no command', [], 'no command given'],
    ['an unknown command', ['gone'], 'Cannot run "gone": no such command; there are add, check, del'],
    ['a mistyped command', ['ad'], 'Cannot run "ad": no such command; did you mean "add"?\n'],
    [
      'a mistyped option',
      ['add', 'a', 'b', '--fil', 'c'],
      'Cannot use --fil: no such option; did you mean --file?; see',
    ],
    ['a missing argument', ['add', 'net'], 'Cannot run "add" with 1 argument: it takes <network> <netns>'],
    ['an argument too many', ['check', 'a', 'b', 'c'], 'with 3 arguments'],
    [
      'no argument where one is needed',
      ['who'],
      'with 0 arguments: it takes <address, mac, port, device, handle, name or id>; see catena help who',
    ],
    ['a second argument of log', ['log', 'n', 'x'], 'with 2 arguments: it takes [<id>]; see'],
    [
      'an unknown option',
      ['add', 'a', 'b', '--nope'],
      'Cannot use --nope: no such option; see catena help add',
    ],
    [
      'an option without its value',
      ['add', 'a', 'b', '--file'],
      'Cannot use --file: its value is missing; see',
    ],
    [
      'a value that is no time',
      ['status', 'n', '--timeout', '-1s', '--file', '/dev/null'],
      'Cannot use --timeout: its value is missing or begins with a dash: --timeout=-1s; see catena help status\n',
    ],
    ['a negative number', ['daemon', '--workers', '-1'], 'a dash: --workers=-1; see catena help daemon\n'],
    ['gc without saying what to keep', ['gc', 'n'], '--valid <id>/<ifname>, or keep none with --all'],
    [
      'gc told both',
      ['gc', 'n', '--all', '--valid', 'a/b'],
      '--valid <id>/<ifname>, or keep none with --all',
    ],
    ['gc with half an attachment', ['gc', 'n', '--valid', 'a'], 'Cannot use --valid "a"'],
    ['no way to name the container', ['del', 'n', ''], '--container-id is required'],
  ])('exits with 2 for %s', async (_, args, message) => {
    if (args[0] === 'del')
      fs.writeFileSync(path.join(dir, 'n.conf'), '{"cniVersion":"1.0.0","name":"n","type":"t"}');
    const { exitCode, stdout, stderr } = await catena(...args);
    expect([exitCode, stdout]).toEqual([2, '']);
    expect(stderr).toStartWith('catena: ');
    expect(stderr).toContain(message);
  });

  test.each(['repair'])('%s fails for a network that is neither configured nor on record', async verb => {
    const args = ['--state-dir', `${dir}/state`, '--cni-cache-dir', `${dir}/cache`];
    fs.writeFileSync(path.join(dir, 'n.conf'), '{"cniVersion":"1.0.0","name":"n","type":"t"}');
    expect(await catena(verb, 'n', ...args)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await catena(verb, ...args)).toMatchObject({ exitCode: 0, stderr: '' });
    const { exitCode, stderr } = await catena(verb, 'nope', ...args);
    expect(exitCode).toBe(1);
    expect(stderr).toContain('Cannot find network "nope": it has no recorded attachment');
    expect(stderr).toContain('configured are "n"');
  });

  test('reports failure as JSON of the specification with --json', async () => {
    const { exitCode, stdout, stderr } = await catena('add', 'nowhere', '/run/netns/x', '--json');
    expect([exitCode, stdout]).toEqual([1, '']);
    expect(JSON.parse(stderr)).toMatchObject({
      cniVersion: '1.1.0',
      code: 7,
      msg: expect.stringContaining(`Cannot find network "nowhere" in "${dir}"`),
    });
    const usage = await catena('add', '--json');
    expect(usage.exitCode).toBe(2);
    expect(JSON.parse(usage.stderr).code).toBe(4);
  });
});
