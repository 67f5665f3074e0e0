// Do the executables introduce themselves, and does nothing but the protocol reach standard output?
import { expect, test } from 'bun:test';
import { statSync } from 'node:fs';
import semver from 'semver';
import { version } from '../../package.json' with { type: 'json' };
import { PLUGIN_NAMES } from '../../plugins/registry.ts';
import { run, TEST_PATH } from '../helpers/command.ts';
import { BIN_DIR } from '../helpers/plugin.ts';

const call = (name: string, env: Record<string, string>, stdin = '') =>
  run([`${BIN_DIR}/${name}`], { env: { PATH: TEST_PATH, ...env }, stdin, timeoutMs: 10_000 });

test('the executables are one file under many names', () => {
  const inodes = ['catena', ...PLUGIN_NAMES].map(name => statSync(`${BIN_DIR}/${name}`).ino);
  expect(new Set(inodes).size).toBe(1);
});

test.each(PLUGIN_NAMES)('%s without CNI_COMMAND describes itself, on standard error', async name => {
  const { exitCode, stdout, stderr } = await call(name, {});
  expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: '' });
  // nerdctl reads the rest of the line as a semantic version, and takes it for that of the reference's plugin.
  const [, release = ''] = new RegExp(`^CNI ${name} plugin (v.*)$`, 'm').exec(stderr) ?? [];
  expect(semver.parse(release)).toMatchObject({ build: `catena-${version}`.split('.') });
  expect(semver.gte(release, '1.9.1')).toBe(true);
  expect(stderr).toMatch(/CNI protocol versions supported: .*1\.0\.0, 1\.1\.0\n$/);
});

test.each(PLUGIN_NAMES)('%s answers VERSION in one line', async name => {
  const { exitCode, stdout, stderr } = await call(name, { CNI_COMMAND: 'VERSION' });
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  expect(JSON.parse(stdout)).toMatchObject({
    cniVersion: '1.1.0',
    supportedVersions: expect.arrayContaining(['1.0.0']),
  });
  expect(stdout.split('\n')).toHaveLength(2);
});

test.each(PLUGIN_NAMES)('%s answers bad input with an error object and exit status 1', async name => {
  const env = { CNI_COMMAND: 'DEL', CNI_CONTAINERID: 'c', CNI_IFNAME: 'eth0', CNI_PATH: BIN_DIR };
  const { exitCode, stdout, stderr } = await call(name, env, '{"cniVersion": "1.1.0", ');
  expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: '' });
  expect(JSON.parse(stdout)).toMatchObject({ code: 6, msg: expect.stringContaining('Cannot decode') });
});

test('what cannot be written is told in a line, without a stack trace', async () => {
  const intoFull = (name: string) =>
    run(['sh', '-c', `exec ${BIN_DIR}/${name} > /dev/full`], {
      env: { PATH: TEST_PATH, ...(name === 'bridge' ? { CNI_COMMAND: 'DEL' } : {}) },
      timeoutMs: 10_000,
    });
  const [plugin, tool] = await Promise.all(['bridge', 'catena help'].map(intoFull));
  const words = 'Cannot write the reply to standard output: ENOSPC';
  expect([plugin?.exitCode, plugin?.stderr]).toEqual([1, expect.stringContaining(words)]);
  expect(plugin?.stderr.trim().split('\n')).toHaveLength(1);
  const told = /^catena: Cannot write to standard output: ENOSPC.*; what the command has done stands$/m;
  expect([tool?.exitCode, tool?.stderr]).toEqual([1, expect.stringMatching(told)]);
});

test('an environment file in the working directory is not read', async () => {
  const { stderr } = await run([`${BIN_DIR}/bridge`], {
    cwd: `${import.meta.dir}/../fixtures/hostile-directory`,
    env: { PATH: TEST_PATH },
    timeoutMs: 10_000,
  });
  expect(stderr).toContain('CNI bridge plugin');
});
