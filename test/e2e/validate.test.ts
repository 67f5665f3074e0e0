// Does the compiled tool find what is wrong with a list, and print the schemas to write one by?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { expectAnswer } from '../helpers/answer.ts';
import { type Finished, run } from '../helpers/command.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeNeeding, requiresReference } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-validate-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const catena = (...args: string[]): Promise<Finished> =>
  run([path.join(BIN_DIR, 'catena'), ...args], { env: { CNI_PATH: BIN_DIR } });

function write(name: string, content: JsonObject): string {
  const file = path.join(dir, name);
  fs.writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name: 'podnet', ...content }, null, 2));
  return file;
}

describe('catena validate', () => {
  test('finds no problem in the examples', async () => {
    const files = fs.readdirSync(path.join(ROOT, 'conflists')).length;
    expect(await catena('validate', path.join(ROOT, 'conflists'), '--strict')).toEqual({
      exitCode: 0,
      stdout: `no problems in ${files} files\n`,
      stderr: '',
    });
  });

  test('reports problem, severity and place, and fails', async () => {
    const file = write('10.conflist', {
      plugins: [{ type: 'bridge', mtu: '1400', bridg: 'br0' }, { type: 'nosuch' }],
    });
    const { exitCode, stdout, stderr } = await catena('validate', file);
    expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: '' });
    expect(stdout.split('\n')).toEqual([
      `${file}:7:14: error: "mtu" must be a number of bytes or "auto", found "1400" [shape]`,
      '    7 |       "mtu": "1400",',
      '      |              ^^^^^^',
      `${file}:8:7: warning: key "bridg" is not known; did you mean "bridge"? [unknown-key]`,
      '    8 |       "bridg": "br0"',
      '      |       ^^^^^^^',
      `${file}:11:15: error: Cannot find plugin "nosuch": no such file in "${BIN_DIR}" [executable]`,
      '   11 |       "type": "nosuch"',
      '      |               ^^^^^^^^',
      '2 errors, 1 warning in 1 file',
      '',
    ]);
  });

  test('fails on warnings only with --strict, and looks for executables unless asked not to', async () => {
    const file = write('10.conflist', { plugins: [{ type: 'bridge', bridg: 'br0' }] });
    expect((await catena('validate', file)).exitCode).toBe(0);
    expect((await catena('validate', file, '--strict')).exitCode).toBe(1);
    write('10.conflist', { plugins: [{ type: 'nosuch' }] });
    expect((await catena('validate', file)).exitCode).toBe(1);
    expect((await catena('validate', file, '--files-only')).exitCode).toBe(0);
  });

  test('takes the name of a network for its file', async () => {
    const file = write('10.conflist', { plugins: [{ type: 'nosuch' }] });
    const byName = await catena('validate', 'podnet', '--conf-dir', dir);
    expect([byName.exitCode, byName.stdout]).toEqual([1, (await catena('validate', file)).stdout]);
    expect((await catena('validate')).stderr).toBe(
      'catena: Cannot validate: name lists, directories of lists or networks\n',
    );
  });

  test('takes several lists, and judges each alone', async () => {
    const files = ['1', '2'].map(name => write(`${name}.conflist`, { plugins: [{ type: 'nosuch' }] }));
    const { exitCode, stdout } = await catena('validate', ...files);
    expect([exitCode, stdout.trimEnd().split('\n').at(-1)]).toEqual([1, '2 errors, 0 warnings in 2 files']);
    expect(stdout).not.toContain('duplicate-name');
  });

  test('is JSON with --json', async () => {
    const file = write('10.conflist', { plugins: [{ type: 'tuning', colour: 'red' }] });
    const { exitCode, stdout } = await catena('validate', dir, '--json');
    expect(exitCode).toBe(1);
    const place = { file, line: 6 };
    expect(expectAnswer('Validation', JSON.parse(stdout))).toEqual({
      valid: false,
      files: 1,
      errors: 1,
      warnings: 1,
      findings: [
        {
          ...place,
          column: 15,
          severity: 'error',
          rule: 'order',
          message: expect.stringContaining('"tuning"'),
        },
        {
          file,
          line: 7,
          column: 7,
          severity: 'warning',
          rule: 'unknown-key',
          message: 'key "colour" is not known',
        },
      ],
    });
  });

  test('fails on missing files', async () => {
    const { exitCode, stderr } = await catena('validate', path.join(dir, 'nothing'));
    expect(exitCode).toBe(1);
    expect(stderr).toStartWith(`catena: Cannot read "${dir}/nothing": ENOENT`);
  });

  test('recognises a copy of our executables as ours', async () => {
    const bin = path.join(dir, 'bin');
    fs.mkdirSync(bin);
    fs.copyFileSync(path.join(BIN_DIR, 'bridge'), path.join(bin, 'bridge'));
    const file = write('10.conflist', { plugins: [{ type: 'bridge', mtu: 'x' }] });
    expect((await catena('validate', file, '--bin-dir', bin)).stdout).toContain('error: "mtu"');
  });

  test('judges the file that a runtime would start: multus as well, and none that cannot be executed', async () => {
    const bin = path.join(dir, 'bin');
    fs.mkdirSync(bin);
    for (const name of ['catena-core', 'bridge', 'multus', 'portmap'])
      fs.copyFileSync(path.join(BIN_DIR, name === 'multus' ? 'bridge' : name), path.join(bin, name));
    fs.chmodSync(path.join(bin, 'portmap'), 0o644);
    const file = write('10.conflist', {
      plugins: [
        { type: 'multus', clusterNetwork: 'x' },
        { type: 'portmap', capabilities: { portMappings: true } },
      ],
    });
    const { exitCode, stdout } = await catena('validate', file, '--bin-dir', bin);
    expect(exitCode).toBe(1);
    expect(stdout).toContain(
      'Cannot get the supported versions of "portmap": Cannot start plugin "portmap": EACCES',
    );
    expect(stdout).not.toContain('no such plugin');
    const second = write('20.conflist', { plugins: [{ type: 'bridge', ipMasq: true }] });
    const advice = (await catena('validate', second, '--bin-dir', bin)).stdout;
    expect(advice).toContain('"ipMasq" does nothing without addresses: add "ipam"');
  });
});

describeNeeding(
  'catena validate with the reference',
  () => {
    test('leaves the options to it, and knows its versions', async () => {
      const file = write('10.conflist', {
        plugins: [{ type: 'bridge', hairpinMode: true, promiscMode: true }],
      });
      const withReference = (...args: string[]) =>
        catena('validate', file, '--bin-dir', REFERENCE_BIN_DIR, ...args);
      expect((await catena('validate', file)).stdout).toContain('exclude each other [option]');
      const { exitCode, stdout } = await withReference('--json');
      const supported = (await run([`${REFERENCE_BIN_DIR}/bridge`], { env: { CNI_COMMAND: 'VERSION' } }))
        .stdout;
      const speaks = JSON.parse(supported).supportedVersions.includes('1.1.0');
      expect(exitCode).toBe(speaks ? 0 : 1);
      expect(JSON.parse(stdout).findings.map(({ rule }: { rule: string }) => rule)).toEqual(
        speaks ? [] : ['version'],
      );
    });
  },
  requiresReference('bridge'),
);

describe('catena validate --schema', () => {
  test.each(['conflist', ...PLUGIN_NAMES, RUNNER_NAME])('prints the published schema of %s', async name => {
    const { exitCode, stdout } = await catena('validate', '--schema', name);
    expect(exitCode).toBe(0);
    expect(stdout).toBe(fs.readFileSync(path.join(ROOT, `dist/schemas/${name}.json`), 'utf8'));
  });

  test('lists the types', async () => {
    const { exitCode, stderr } = await catena('validate', '--schema', 'openvswitch');
    expect(exitCode).toBe(2);
    expect(stderr).toStartWith(
      'catena: Cannot show the schema of "openvswitch": no such schema; there are conflist, ',
    );
  });
});
