import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findNetwork, type NetworkPlaces } from '../../../src/delegate/find-network.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-find-'));
  const list = { cniVersion: '1.0.0', name: 'storage', plugins: [{ type: 'noop' }] };
  fs.writeFileSync(path.join(dir, 'storage.conflist'), JSON.stringify(list));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

/** A cluster whose only definition is infra's, without a configuration of its own. */
const fetchDefinition: NonNullable<NetworkPlaces['fetchDefinition']> = async (namespace, name) =>
  namespace === 'infra' && name === 'storage' ? { name, namespace, config: '' } : undefined;

const asked = (namespace: string, more: object = {}) => ({
  namespace,
  name: 'storage',
  byPod: true,
  isolated: false,
  ...more,
});

test('a pod reaches a file of the node only through a definition when there is a cluster', async () => {
  const places = { confDir: dir, definitionsDir: undefined, cniVersion: '1.0.0', fetchDefinition };
  expect((await findNetwork(places, asked('infra'))).label).toBe('infra/storage');
  await expect((async () => findNetwork(places, asked('evil')))()).rejects.toMatchObject({
    code: 7,
    message: expect.stringContaining('Cannot use network "evil/storage" in a pod'),
  });
});

test('the configuration names files of the node in any case, and a pod does without namespace isolation', async () => {
  const places = { confDir: dir, definitionsDir: undefined, cniVersion: '1.0.0' };
  const byConfiguration = asked('kube-system', { byPod: false, isolated: true });
  expect((await findNetwork({ ...places, fetchDefinition }, byConfiguration)).label).toBe('storage');
  expect((await findNetwork(places, asked('a'))).label).toBe('storage');
});

test('a name that is neither a file nor a definition is told with both directories', async () => {
  const places = { confDir: dir, definitionsDir: '/proc/self/fdinfo', cniVersion: '1.0.0' };
  const asked = { namespace: 'kube-system', name: 'gone', byPod: false, isolated: false };
  await expect(findNetwork(places, asked)).rejects.toThrow(
    ', and no NetworkAttachmentDefinition "kube-system/gone" in "/proc/self/fdinfo"',
  );
});
