// Does a process answer in the protocol's words whatever happens inside?
import { expect, test } from 'bun:test';
import { join } from 'node:path';
import { aboutText } from '../../../src/plugin/run.ts';
import { run } from '../../helpers/command.ts';

const FORGETFUL = join(import.meta.dir, '../../fixtures/forgetful.ts');

test('runPlugin() answers with code 999 when an unawaited promise fails, and prints the stack to standard error', async () => {
  const own = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c', CNI_NETNS: '/n', CNI_IFNAME: 'eth0' };
  // It has no note of its ADD to leave: nothing can be made below a file.
  const env = { ...own, CATENA_RUN_DIR: FORGETFUL };
  const stdin = JSON.stringify({ cniVersion: '1.1.0', name: 'n', type: 'forgetful' });
  const { exitCode, stdout, stderr } = await run([process.execPath, FORGETFUL], { env, stdin });
  expect(exitCode).toBe(1);
  expect(JSON.parse(stdout)).toEqual({ code: 999, msg: 'forgotten' });
  expect(stderr).toContain('forgetful.ts');
});

test('aboutText() names the plugin and the versions it supports', () => {
  const definition = { name: 'sample', since: '1.0.0' } as Parameters<typeof aboutText>[0];
  const supported = 'CNI protocol versions supported: 1.0.0, 1.1.0';
  expect(aboutText(definition, '2.3.4')).toBe(`CNI sample plugin v2.3.4\n${supported}\n`);
  expect(aboutText(definition)).toBe(`CNI sample plugin version unknown\n${supported}\n`);
});
