import { describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../../src/chain/config/conflist.ts';
import type { CommandCall } from '../../../src/cli/command.ts';
import { attachmentOf, findUnread, runtimeOf, traceDirFor } from '../../../src/cli/target.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { deriveContainerId } from '../../../src/node/names.ts';

function call(
  options: Record<string, string | string[]> = {},
  env: Record<string, string> = {},
  positionals = ['net', '/run/netns/x'],
): CommandCall & { said: string[] } {
  const said: string[] = [];
  return {
    positionals,
    table: { commands: [], globalOptions: {} },
    format: 'text',
    runCommand: async () => 0,
    cwd: '/somewhere',
    text: name => (typeof options[name] === 'string' ? options[name] : undefined),
    texts: name => (Array.isArray(options[name]) ? options[name] : []),
    on: name => name in options,
    env,
    plugins: { types: [], find: () => undefined, schemas: async () => ({}) },
    signal: new AbortController().signal,
    out() {},
    isUnread: false,
    err: text => said.push(text),
    warn: ({ message }) => said.push(message),
    said,
  };
}

test('traceDirFor() is absolute: a daemon leaves the directory in which it was started', () => {
  expect(traceDirFor(call({ 'run-dir': 'run' }))).toBe('/somewhere/run/traces');
  expect(traceDirFor(call({}, { CATENA_RUN_DIR: 'run' }))).toBe('/somewhere/run/traces');
  expect(traceDirFor(call({ 'run-dir': 'run', 'trace-dir': 'own' }))).toBe('/somewhere/own');
});

test('deriveContainerId() returns the id that cnitool uses', () => {
  // printf /run/netns/x | sha512sum | cut -c1-20
  expect(deriveContainerId('/run/netns/x')).toBe('cnitool-55e2cecc95014b0f7fc4');
});

describe('attachmentOf()', () => {
  test('has the defaults of cnitool', () => {
    expect(attachmentOf(call())).toEqual({
      containerId: 'cnitool-55e2cecc95014b0f7fc4',
      netns: '/run/netns/x',
      ifname: 'eth0',
      args: [],
      capabilityArgs: {},
    });
  });

  test('reads the variables of cnitool', () => {
    const env = { CNI_IFNAME: 'net1', CNI_ARGS: 'A=1;B=2', CAP_ARGS: '{"mac":"x"}' };
    expect(attachmentOf(call({}, env))).toMatchObject({
      ifname: 'net1',
      args: [
        ['A', '1'],
        ['B', '2'],
      ],
      capabilityArgs: { mac: 'x' },
    });
  });

  test('prefers options to variables', () => {
    const env = { CNI_IFNAME: 'net1', CNI_ARGS: 'A=1', CAP_ARGS: '{"mac":"x"}' };
    const options = { ifname: 'net2', args: 'C=3', cap: '{"ips":[]}', 'container-id': 'mine' };
    expect(attachmentOf(call(options, env))).toMatchObject({
      containerId: 'mine',
      ifname: 'net2',
      args: [['C', '3']],
      capabilityArgs: { ips: [] },
    });
  });

  test('makes the path of the namespace absolute, and accepts none with a container id', () => {
    expect(attachmentOf(call({}, {}, ['net', './ns'])).netns).toBe('/somewhere/ns');
    expect(attachmentOf(call({}, {}, ['net', 'ns'])).netns).toBe('/run/netns/ns');
    expect(attachmentOf(call({ 'container-id': 'c' }, {}, ['net', ''])).netns).toBe('');
    expect(() => attachmentOf(call({}, {}, ['net', '']))).toThrow('--container-id is required');
  });

  test.each(['A', 'A=1;', 'A=', '=1', 'A=1=2'])('refuses the arguments %j', args => {
    expect(() => attachmentOf(call({ args }))).toThrow('Cannot read CNI_ARGS: invalid pair');
  });

  test.each(['{', '[]', 'null'])('refuses the capability arguments %j', cap => {
    expect(() => attachmentOf(call({ cap }))).toThrow('Cannot decode capability arguments');
  });
});

describe('runtimeOf()', () => {
  test('uses the directories of cnitool', () => {
    expect(runtimeOf(call()).pluginDirs).toEqual(['/opt/cni/bin']);
    expect(runtimeOf(call({}, { CNI_PATH: '/a:/b' })).pluginDirs).toEqual(['/a', '/b']);
    expect(runtimeOf(call({ 'bin-dir': ['/c', '/d'] }, { CNI_PATH: '/a' })).pluginDirs).toEqual(['/c', '/d']);
  });

  test('reads the timeout in seconds', () => {
    expect(runtimeOf(call()).deadlineMs).toBeUndefined();
    expect(runtimeOf(call({ timeout: ['1.5'] })).deadlineMs).toMatchObject({ ADD: 1500, VERSION: 1500 });
    for (const timeout of ['0', '-1', 'x', '', 'Infinity', 'add=', 'add=x', 'add=1=2', 'frob=1', '=1']) {
      expect(() => runtimeOf(call({ timeout: [timeout] }))).toThrow(`Cannot use --timeout "${timeout}"`);
    }
  });

  test('reads the timeout of a verb, which overrides the general one', () => {
    const { deadlineMs } = runtimeOf(call({ timeout: ['9', 'del=90', '5', 'Add=2.5', 'del=120'] }));
    expect(deadlineMs).toEqual({
      ADD: 2500,
      CHECK: 5000,
      DEL: 120_000,
      GC: 5000,
      STATUS: 5000,
      VERSION: 5000,
    });
    expect(runtimeOf(call({ timeout: ['gc=3'] })).deadlineMs).toEqual({ GC: 3000 });
  });

  test('passes on the standard error of a plugin that succeeded, and warnings', () => {
    const asked = call();
    const event = {
      network: 'n',
      plugin: 'l',
      index: 0,
      executable: '/l',
      verb: 'ADD',
      durationMs: 1,
    } as const;
    runtimeOf(asked).onPlugin?.({ ...event, stderr: 'a warning' });
    runtimeOf(asked).onPlugin?.({ ...event, stderr: '' });
    runtimeOf(asked).onWarning?.(new CniError(6, 'Cannot read it'));
    expect(asked.said).toEqual(['a warning\n', 'Cannot read it']);
  });
});

const capabilities = { portMappings: true, bandwidth: false };
const list = parseNetwork(
  JSON.stringify({ cniVersion: '1.0.0', name: 'n', plugins: [{ type: 'a' }, { type: 'b', capabilities }] }),
);

test('findUnread() returns capabilities that no plugin declares, and what may have been meant', () => {
  expect(findUnread(list, { portMapping: [], bandwidth: {} }).map(({ message }) => message)).toEqual([
    'Cannot pass capability "portMapping": no plugin of network "n" declares it; did you mean "portMappings"?',
    'Cannot pass capability "bandwidth": no plugin of network "n" declares it',
  ]);
});

test('findUnread() ignores capabilities that a plugin declares', () => {
  expect(findUnread(list, { portMappings: [] })).toEqual([]);
  expect(findUnread(list, {})).toEqual([]);
});
