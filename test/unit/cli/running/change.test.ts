import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { writeEntry } from '../../../../src/attachments/entries.ts';
import { checkFree, detach, nextIfname, planAttach } from '../../../../src/cli/running/change.ts';
import type { ContainerPlace, KnownContainer } from '../../../../src/cli/running/container.ts';
import { type RecordedAttachment, readRecords } from '../../../../src/node/facts.ts';

const known = (network: string, ifname: string, request?: string) => ({
  ...{ network, ifname, containerId: 'web', netns: '/n', args: [], capabilityArgs: {}, request },
});
const container = {
  containerId: 'web',
  attachments: [known('podnet', 'eth0'), known('storage', 'net1', 'key-1')],
  inPod: [],
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

test('a name that a delegate runner is about to use is taken, too', () => {
  const wanted = { network: 'storage', args: [], capabilityArgs: {} };
  expect(planAttach({ ...container, inPod: ['net3'] }, place, wanted).ifname).toBe('net4');
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

test('what another runtime attached is deleted from the cache in which it is', async () => {
  const dir = fs.mkdtempSync(path.join(tmpdir(), 'cat-detach-'));
  try {
    const runtime = {
      ...{ pluginDirs: [], cacheDir: path.join(dir, 'cni'), stateDir: path.join(dir, 'state') },
      env: { ...process.env, CATENA_RUN_DIR: path.join(dir, 'run') },
      find: (type: string) => `/somewhere/${type}`,
      isOwn: () => true,
      exec: () => ({ stdout: '' }),
    };
    const cacheDir = path.join(dir, 'multus');
    const source = JSON.stringify({ cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'one' }] });
    const inputs = { netns: '', args: [], capabilityArgs: {}, source };
    const result = { cniVersion: '1.0.0' };
    writeEntry(cacheDir, { network: 'net', containerId: 'c1', ifname: 'net1', ...inputs, result });
    const [one] = readRecords({ ...runtime, cacheDir }).attachments;
    await detach(one as RecordedAttachment, runtime);
    expect(fs.readdirSync(path.join(cacheDir, 'results'))).toEqual([]);
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});
