// Does a process answer in the protocol's words whatever happens inside?
import { expect, test } from 'bun:test';
import { join } from 'node:path';
import { aboutText } from '../../../src/plugin/run.ts';
import { run } from '../../helpers/command.ts';

const FIXTURES = join(import.meta.dir, '../../fixtures');

/** The arguments and options for running the fixture of that name. */
function callOf(name: string) {
  const file = join(FIXTURES, `${name}.ts`);
  const own = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c', CNI_NETNS: '/n', CNI_IFNAME: 'eth0' };
  // It has no note of its ADD to leave: nothing can be made below a file.
  const env = { ...own, CATENA_RUN_DIR: file };
  return [
    [process.execPath, file],
    { env, stdin: JSON.stringify({ cniVersion: '1.1.0', name: 'n', type: name }) },
  ] as const;
}

test('runPlugin() answers with code 999 when an unawaited promise fails, and prints the stack to standard error', async () => {
  const { exitCode, stdout, stderr } = await run(...callOf('forgetful'));
  expect(exitCode).toBe(1);
  expect(JSON.parse(stdout)).toEqual({ code: 999, msg: 'forgotten' });
  expect(stderr).toContain('forgetful.ts');
});

test('runPlugin() keeps what a plugin prints apart from its reply', async () => {
  const { exitCode, stdout, stderr } = await run(...callOf('talkative'));
  expect([exitCode, JSON.parse(stdout)]).toEqual([0, { cniVersion: '1.1.0' }]);
  expect(stderr).toStartWith('for the author\n');
});

test('runPlugin() replies although standard error is full', async () => {
  const [argv, { env, stdin }] = callOf('talkative');
  const child = Bun.spawn([...argv], { env, stdin: Buffer.from(stdin), stderr: Bun.file('/dev/full') });
  const stdout = await child.stdout.text();
  expect([await child.exited, JSON.parse(stdout)]).toEqual([0, { cniVersion: '1.1.0' }]);
});

test('aboutText() names the plugin and the versions it supports', () => {
  const definition = { name: 'sample', since: '1.0.0' } as Parameters<typeof aboutText>[0];
  const supported = 'CNI protocol versions supported: 1.0.0, 1.1.0';
  expect(aboutText(definition, '2.3.4')).toBe(`CNI sample plugin v2.3.4\n${supported}\n`);
  expect(aboutText(definition)).toBe(`CNI sample plugin version unknown\n${supported}\n`);
});
