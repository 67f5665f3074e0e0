import { describe, expect, test } from 'bun:test';
import { commandOf, toResponse } from '../../../src/daemon/api.ts';

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
    expect(post('gc', { network: 'n', valid: [{ containerId: 'a', ifname: 'eth0' }], dryRun: true })).toEqual(
      {
        args: ['gc', '--valid=a/eth0', '--dry-run', '--json', '--', 'n'],
      },
    );
    expect(post('status', { network: 'n' })).toEqual({ args: ['status', '--json', '--', 'n'] });
    expect(commandOf('GET', '/v1/attachments', '')).toEqual({ args: ['ls', '--all', '--json'] });
  });

  test('makes command lines for containers that run', () => {
    const on = { container: 'web', network: 'podnet' };
    const options = { firewall: { ingressPolicy: 'open' } };
    expect(post('set', { ...on, capabilityArgs: { bandwidth: null }, options })).toEqual({
      args: [
        ...['set', '--cap={"bandwidth":null}', '--conf={"firewall":{"ingressPolicy":"open"}}'],
        ...['--json', '--', 'podnet', 'web'],
      ],
    });
    expect(post('attach', { ...on, ifname: 'net5', confDir: '/c', defaultRoute: true })).toEqual({
      args: ['attach', '--conf-dir=/c', '--ifname=net5', '--default-route', '--json', '--', 'web', 'podnet'],
    });
    expect(post('detach', { ...on, force: true, binDirs: ['/a'] })).toEqual({
      args: ['detach', '--bin-dir=/a', '--force', '--json', '--', 'web', 'podnet'],
    });
  });

  test.each([
    ['a missing container', 'set', { network: 'a' }],
    ['an option of another verb', 'detach', { network: 'a', container: 'b', ifname: 'eth0' }],
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

test.each([
  ['a result', { exitCode: 0, stdout: '{"a":1}\n', stderr: '' }, 200, { a: 1 }],
  ['nothing', { exitCode: 0, stdout: '', stderr: '' }, 200, {}],
  [
    'warnings before a failure',
    { exitCode: 1, stdout: '', stderr: '{"kind":"Warning"}\n{"code":7}\n' },
    500,
    { code: 7 },
  ],
  [
    'a report of a failure',
    { exitCode: 1, stdout: '{"items":[]}\n', stderr: '{"kind":"Warning"}\n' },
    500,
    { items: [] },
  ],
  ['too many requests', { exitCode: 1, stdout: '{"code":11}', stderr: 'catena: busy\n' }, 500, { code: 11 }],
])('toResponse() answers with JSON: %s', async (_what, reply, status, body) => {
  const response = toResponse(reply);
  expect([response.status, await response.json()]).toEqual([status, body]);
});
