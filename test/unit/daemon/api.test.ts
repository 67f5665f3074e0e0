import { describe, expect, test } from 'bun:test';
import { commandOf, parseRunRequest } from '../../../src/daemon/api.ts';

const post = (verb: string, body: unknown) => commandOf('POST', `/v1/${verb}`, JSON.stringify(body));

describe('commandOf()', () => {
  test('makes a command line for an attachment', () => {
    const body = {
      network: 'podnet',
      netns: '/run/netns/a',
      containerId: 'a',
      ifname: 'net1',
      capabilityArgs: { portMappings: [] },
      binDirs: ['/a', '/b'],
    };
    expect(post('add', body)).toEqual({
      args: [
        'add',
        '--bin-dir=/a',
        '--bin-dir=/b',
        '--container-id=a',
        '--ifname=net1',
        '--cap={"portMappings":[]}',
        '--json',
        '--',
        'podnet',
        '/run/netns/a',
      ],
    });
  });

  test('lets no value become an option', () => {
    expect(post('del', { network: '--all', containerId: '--help' })).toEqual({
      args: ['del', '--container-id=--help', '--json', '--', '--all', ''],
    });
  });

  test('makes command lines for gc, status and the list of attachments', () => {
    expect(post('gc', { network: 'n', valid: [{ containerID: 'a', ifname: 'eth0' }], dryRun: true })).toEqual(
      {
        args: ['gc', '--valid=a/eth0', '--dry-run', '--json', '--', 'n'],
      },
    );
    expect(post('status', { network: 'n' })).toEqual({ args: ['status', '--json', '--', 'n'] });
    expect(commandOf('GET', '/v1/attachments', '')).toEqual({ args: ['list', '--json'] });
  });

  test.each([
    ['no JSON', 'add', undefined],
    ['no network', 'add', { netns: '/a' }],
    ['an unknown key', 'status', { network: 'a', netns: '/a' }],
    ['a value of another kind', 'gc', { network: 'a', valid: 'all' }],
  ])('reports what is wrong with %s', (_what, verb, body) => {
    expect(post(verb, body)).toMatchObject({
      problem: expect.stringContaining(`not a request for "${verb}"`),
    });
  });

  test('accepts no other paths', () => {
    expect(commandOf('POST', '/v1/toString', '{}')).toBeUndefined();
    expect(commandOf('GET', '/v1/add', '')).toBeUndefined();
    expect(commandOf('POST', '/v2/add', '{}')).toBeUndefined();
  });
});

describe('parseRunRequest()', () => {
  const request = {
    place: { executable: '1:2', network: '3:4', mount: '5:6' },
    args: ['add', 'podnet'],
    cwd: '/',
    env: { CNI_PATH: '/opt/cni/bin' },
    key: 'k',
  };
  const parse = (change: object) => parseRunRequest(JSON.stringify({ ...request, ...change }));

  test('accepts a command, and a call as a plugin', () => {
    expect(parse({})).toEqual(request);
    expect(parse({ args: [], stdin: '{}' })).toEqual({ ...request, args: [], stdin: '{}' });
    expect(parse({ args: [], stdin: '{}', link: 'bridge' })).toMatchObject({ link: 'bridge' });
  });

  test.each([
    ['a second daemon in the same process', { args: ['daemon'] }],
    ['no command', { args: [] }],
    ['a command and a call at once', { stdin: '{}' }],
    ['arguments that are no texts', { args: ['add', {}] }],
    ['an environment that is none', { env: null }],
    ['a link without standard input', { args: [], link: 'bridge' }],
    ['no key', { key: undefined }],
  ])('refuses %s', (_, change) => {
    expect(parse(change)).toBeUndefined();
  });
});
