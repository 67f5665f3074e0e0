// Does `catena init` write lists that validate and work, by questions on a terminal and by options?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Finished, run } from '../helpers/command.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { typeInto } from '../helpers/terminal.ts';

const CATENA = path.join(BIN_DIR, 'catena');

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-init-'));
  fs.mkdirSync(path.join(dir, 'net.d'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const env = () => ({
  CNI_PATH: BIN_DIR,
  NETCONFPATH: path.join(dir, 'net.d'),
  CATENA_STATE_DIR: path.join(dir, 'state'),
  CATENA_CNI_CACHE_DIR: path.join(dir, 'cache'),
  CATENA_RUN_DIR: path.join(dir, 'run'),
});
const catena = (...args: string[]): Promise<Finished> =>
  run([CATENA, ...args], { cwd: dir, env: env(), timeoutMs: 60_000 });
const read = (name: string) => JSON.parse(fs.readFileSync(path.join(dir, name), 'utf8'));

describe('catena init by options', () => {
  test.each([
    ['bridge', ['--ports', '--rates'], []],
    ['internal', ['--rates'], []],
    ['ptp', ['--ports', '--rates'], []],
    ['macvlan', ['--device', 'lan0'], ['--device', 'lan0']],
  ] as const)('writes a list of kind %s that validates and works', async (kind, options, more) => {
    const made = await catena('init', 'podnet', '--kind', kind, '--subnet', 'auto', ...options);
    expect(made).toMatchObject({ exitCode: 0, stderr: '' });
    expect(made.stdout).toContain('catena try podnet.conflist');
    expect(await catena('validate', '--strict', 'podnet.conflist')).toMatchObject({ exitCode: 0 });
    expect(await catena('try', 'podnet.conflist', ...more)).toMatchObject({ exitCode: 0 });
    expect(fs.readdirSync(dir).sort()).toEqual(['net.d', 'podnet.conflist']);
  });

  test('suggests what no other list has', async () => {
    for (const name of ['one', 'two']) {
      const file = `net.d/${name}.conflist`;
      const made = await catena('init', name, '--kind', 'bridge', '--subnet', 'auto', '--file', file);
      expect(made).toMatchObject({ exitCode: 0 });
    }
    expect(await catena('validate', '--strict', 'net.d')).toMatchObject({ exitCode: 0 });
    const again = await catena('init', 'one', '--kind', 'bridge', '--subnet', 'auto');
    expect(again.stderr).toContain('net.d/one.conflist" configures one of that name');
    const { subnet } = read('net.d/one.conflist').plugins[0].ipam.ranges[0][0];
    const overlapping = await catena('init', 'three', '--kind', 'ptp', '--subnet', subnet);
    expect(overlapping.exitCode).not.toBe(0);
    expect(overlapping.stderr).toContain(`it overlaps with subnet ${subnet} of network "one"`);
    expect(fs.readdirSync(dir)).toEqual(['net.d']);
  });

  test('replaces a file only with --force', async () => {
    fs.writeFileSync(path.join(dir, 'podnet.conflist'), 'mine');
    const args = ['init', 'podnet', '--kind', 'bridge', '--subnet', 'none'];
    const refused = await catena(...args);
    expect(refused.exitCode).toBe(1);
    expect(refused.stderr).toContain('it exists; choose another file, or use --force');
    expect(fs.readFileSync(path.join(dir, 'podnet.conflist'), 'utf8')).toBe('mine');
    const { exitCode, stdout } = await catena(...args, '--force', '--json');
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout).list).toEqual(read('podnet.conflist'));
  });

  test('says which options are missing without a terminal', async () => {
    const { exitCode, stderr } = await catena('init', '--kind', 'bridge');
    expect(exitCode).toBe(2);
    expect(stderr).toContain('<name>, --subnet are missing, and there is no terminal to ask on');
  });

  test.each([
    [['--kind', 'brigde', '--subnet', 'auto'], 'did you mean "bridge"?'],
    [['--kind', 'macvlan', '--subnet', 'auto', '--ports'], 'Cannot use --ports: packets of a network'],
    [['--kind', 'internal', '--subnet', 'auto', '--ports'], 'no route by which to answer'],
    [['--kind', 'bridge', '--subnet', 'auto', '--device', 'eth0'], 'a network of kind bridge has none'],
    [['--kind', 'bridge', '--subnet', '10.1.2.3/24'], 'it is an address in 10.1.2.0/24'],
  ])('refuses %p', async (args, reason) => {
    const { exitCode, stderr } = await catena('init', 'podnet', ...args);
    expect(exitCode).not.toBe(0);
    expect(stderr).toContain(reason);
    expect(fs.readdirSync(dir)).toEqual(['net.d']);
  });
});

describe('catena init on a terminal', () => {
  const type = (answers: string) => typeInto([CATENA, 'init'], answers, { cwd: dir, env: env() });

  test('asks four questions, and the suggested answers make a network', async () => {
    const { exitCode, shown } = await type('\n\n\n\n');
    expect({ exitCode, shown: shown.includes('4/4 Which name?') }).toEqual({ exitCode: 0, shown: true });
    expect(read('podnet.conflist').plugins.map(({ type: one }: { type: string }) => one)).toEqual([
      'bridge',
      'portmap',
      'bandwidth',
    ]);
    expect(await catena('validate', '--strict', 'podnet.conflist')).toMatchObject({ exitCode: 0 });
  });

  test('asks again after an answer that it cannot use', async () => {
    const { exitCode, shown } = await type(
      'brigde\nmacvlan lan0\n10.1.0.1/24\ndhcp\nno/name\nlan mine.conflist\n',
    );
    expect({ exitCode, shown }).toMatchObject({ exitCode: 0 });
    expect(shown).toContain('did you mean "bridge"?');
    expect(shown).toContain('it is an address in 10.1.0.0/24');
    expect(read('mine.conflist')).toEqual({
      cniVersion: '1.0.0',
      name: 'lan',
      plugins: [{ type: 'macvlan', master: 'lan0', ipam: { type: 'dhcp' } }],
    });
  });

  test('writes nothing if the input ends', async () => {
    const { exitCode, shown } = await type('bridge\n\u0004');
    expect(exitCode).toBe(1);
    expect(shown).toContain('the input ended before the last answer');
    expect(fs.readdirSync(dir)).toEqual(['net.d']);
  });
});
