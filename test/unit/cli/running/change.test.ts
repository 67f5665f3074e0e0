import { expect, test } from 'bun:test';
import { checkFree, nextIfname, planAttach } from '../../../../src/cli/running/change.ts';
import type { ContainerPlace, KnownContainer } from '../../../../src/cli/running/container.ts';

const known = (network: string, ifname: string, request?: string) => ({
  ...{ network, ifname, containerId: 'web', netns: '/n', args: [], capabilityArgs: {}, request },
});
const container = {
  containerId: 'web',
  attachments: [known('podnet', 'eth0'), known('storage', 'net1', 'key-1')],
} as unknown as KnownContainer;
const place = {
  netns: '/n',
  identity: { netnsIdentity: '1:2' },
  inside: new Map([
    ['lo', {}],
    ['eth0', {}],
    ['net1', {}],
    ['net2', {}],
  ]),
} as unknown as ContainerPlace;
const plan = (more: object) =>
  planAttach(container, place, { network: 'storage', args: [], capabilityArgs: {}, ...more }).ifname;

test('names on record and in the namespace are taken', () => {
  expect(plan({})).toBe('net3');
  expect(plan({ ifname: 'data0' })).toBe('data0');
  expect(() => plan({ ifname: 'net2' })).toThrow('already has an interface "net2"');
});

test('a request that is made again means the attachment that it made', () => {
  expect(plan({ request: 'key-1' })).toBe('net1');
  expect(plan({ request: 'key-1', ifname: 'net1' })).toBe('net1');
  expect(plan({ request: 'key-2' })).toBe('net3');
  expect(plan({ request: 'key-1', network: 'podnet' })).toBe('net3');
});

test.each([
  [[], 'net1'],
  [['lo', 'eth0', 'net0'], 'net1'],
  [['net1', 'net3'], 'net2'],
  [['net1', 'net2'], 'net3'],
])('after %j comes %s', (taken, expected) => {
  expect(nextIfname(new Set(taken))).toBe(expected);
});

test('a name that is taken is refused', () => {
  expect(() => checkFree('web', 'eth0', new Set(['eth0']))).toThrow('already has an interface "eth0"');
  expect(() => checkFree('web', 'eth1', new Set(['eth0']))).not.toThrow();
});
