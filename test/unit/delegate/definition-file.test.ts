import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { definitionsOf, findDefinition } from '../../../src/delegate/definition-file.ts';

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
