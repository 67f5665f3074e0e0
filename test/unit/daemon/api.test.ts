import { describe, expect, test } from 'bun:test';
import { commandOf } from '../../../src/daemon/api.ts';

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
