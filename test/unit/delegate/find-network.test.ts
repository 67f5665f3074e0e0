import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { definitionsOf, findDefinition, findNetwork, loadPath } from '../../../src/delegate/find-network.ts';
import type { NetworkPlaces } from '../../../src/delegate/runner.ts';

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

test('a path below a file is told like one that is missing', () => {
  for (const name of ['storage.conflist/below', 'missing.conflist'])
    expect(() => loadPath(path.join(dir, name))).toThrow(expect.objectContaining({ code: 5 }));
});

test('of a directory, the first file counts whatever its extension', () => {
  const several = path.join(dir, 'several');
  fs.mkdirSync(several);
  fs.writeFileSync(path.join(several, '10-broken.conf'), '{');
  fs.writeFileSync(path.join(several, '20-single.conf'), JSON.stringify({ name: 'single', type: 'noop' }));
  const list = { name: 'list', plugins: [{ type: 'noop' }] };
  fs.writeFileSync(path.join(several, '30-list.conflist'), JSON.stringify(list));
  expect(loadPath(several).label).toBe('single');
});

test('a name that is neither a file nor a definition is told with both directories', async () => {
  const places = { confDir: dir, definitionsDir: '/proc/self/fdinfo', cniVersion: '1.0.0' };
  const asked = { namespace: 'kube-system', name: 'gone', byPod: false, isolated: false };
  await expect(findNetwork(places, asked)).rejects.toThrow(
    ', and no NetworkAttachmentDefinition "kube-system/gone" in "/proc/self/fdinfo"',
  );
});

describe('definitions in files', () => {
  let dir: string;
  beforeEach(() => {
    dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-nad-'));
  });
  afterEach(() => fs.rmSync(dir, { recursive: true }));

  const write = (name: string, text: string) => fs.writeFileSync(path.join(dir, name), text);
  const definition = (name: string, namespace: string | undefined, config = '') => ({
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: { name, ...(namespace ? { namespace } : {}) },
    spec: config ? { config } : {},
  });

  describe('findDefinition()', () => {
    test('finds a definition in JSON by name and namespace', async () => {
      write('a.json', JSON.stringify(definition('net', 'one', '{"type":"a"}')));
      write('b.json', JSON.stringify(definition('net', 'two', '{"type":"b"}')));
      expect(await findDefinition(dir, 'two', 'net')).toEqual({
        name: 'net',
        namespace: 'two',
        config: '{"type":"b"}',
      });
      expect(await findDefinition(dir, 'three', 'net')).toBeUndefined();
    });

    test('finds a definition among the documents of a YAML file', async () => {
      write(
        'all.yaml',
        `---
apiVersion: v1
kind: ConfigMap
metadata: {name: net}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: net
  namespace: one
spec:
  config: |
    {
      "type": "bridge"
    }
---
`,
      );
      expect(JSON.parse((await findDefinition(dir, 'one', 'net'))?.config ?? '')).toEqual({ type: 'bridge' });
    });

    test('uses a definition without namespace for every namespace, and definitions in a List', async () => {
      write('list.yml', JSON.stringify({ kind: 'List', items: [definition('net', undefined, '{}')] }));
      expect(await findDefinition(dir, 'any', 'net')).toMatchObject({ name: 'net', config: '{}' });
    });

    test('skips a broken file, and names it when no definition is found', async () => {
      write('a.json', '{ net');
      write('b.yaml', 'net: [');
      write('c.json', JSON.stringify(definition('net', 'one')));
      expect(await findDefinition(dir, 'one', 'net')).toMatchObject({ name: 'net' });
      await expect(findDefinition(dir, 'two', 'net')).rejects.toMatchObject({
        code: 7,
        details: expect.stringMatching(/a\.json.*b\.yaml/),
      });
    });

    test('treats a missing directory as empty, and skips other files', async () => {
      expect(await findDefinition(path.join(dir, 'none'), 'one', 'net')).toBeUndefined();
      write('net.txt', 'net');
      fs.mkdirSync(path.join(dir, 'net.json'));
      expect(await findDefinition(dir, 'one', 'net')).toBeUndefined();
    });
  });

  test('definitionsOf() finds nothing in any other value', () => {
    const others = [
      null,
      5,
      [],
      {},
      { kind: 'Pod', metadata: { name: 'a' } },
      { kind: 'NetworkAttachmentDefinition' },
    ];
    expect(others.flatMap(definitionsOf)).toEqual([]);
  });
});
