import { describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../../../src/chain/config/conflist.ts';
import { buildGcRequest, buildRequest, type RequestParts } from '../../../../src/chain/run/request.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';

function build(conf: JsonObject, parts: RequestParts = {}, cniVersion = '1.1.0'): JsonObject {
  const list = parseNetwork(JSON.stringify({ cniVersion, name: 'net', args: { lost: 1 }, plugins: [conf] }));
  const [entry] = list.plugins;
  if (entry === undefined) throw new Error('no entry');
  return buildRequest(list, entry, parts);
}

describe('buildRequest()', () => {
  test('sets name and version over those of the entry, and keeps every other key', () => {
    const conf = {
      type: 't',
      name: 'mine',
      cniVersion: '0.1.0',
      some: { deep: [1, null] },
      args: { cni: {} },
    };
    expect(build(conf)).toEqual({ ...conf, name: 'net', cniVersion: '1.1.0' });
  });

  test('writes the version that was selected', () => {
    expect(build({ type: 't' }, {}, '').cniVersion).toBe('0.1.0');
  });

  test('drops a prevResult of the file and sets the given one', () => {
    const conf = { type: 't', prevResult: { cniVersion: '1.1.0', stale: true } };
    expect('prevResult' in build(conf)).toBe(false);
    const prevResult = { cniVersion: '1.1.0', ips: [] };
    expect(build(conf, { prevResult }).prevResult).toEqual(prevResult);
  });

  test.each<[string, JsonObject, JsonObject, JsonObject | undefined]>([
    ['only what is true', { a: true, b: false }, { a: 1, b: 2, c: 3 }, { a: 1 }],
    ['false and empty values as well', { a: true, b: true }, { a: false, b: [] }, { a: false, b: [] }],
    ['nothing that is not offered', { a: true }, { b: 1 }, undefined],
    ['nothing that only a prototype has', { toString: true, constructor: true }, {}, undefined],
    ['nothing without capabilities', {}, { a: 1 }, undefined],
  ])('gives runtimeConfig %s', (_, capabilities, capabilityArgs, expected) => {
    const request = build({ type: 't', capabilities }, { capabilityArgs });
    expect(request.runtimeConfig).toEqual(expected as never);
    expect(request.capabilities).toEqual(capabilities);
  });

  test('replaces a runtimeConfig of the file only when a capability is offered', () => {
    const conf = { type: 't', capabilities: { a: true }, runtimeConfig: { z: 1 } };
    expect(build(conf).runtimeConfig).toEqual({ z: 1 });
    expect(build(conf, { capabilityArgs: { a: 2 } }).runtimeConfig).toEqual({ a: 2 });
  });

  test('keeps a key named __proto__', () => {
    const list = parseNetwork(
      '{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"t","__proto__":{"x":1}}]}',
    );
    const [entry] = list.plugins;
    if (entry === undefined) throw new Error('no entry');
    expect(JSON.stringify(buildRequest(list, entry))).toBe(
      '{"type":"t","__proto__":{"x":1},"name":"n","cniVersion":"1.0.0"}',
    );
  });
});

test('buildGcRequest() lists the attachments to keep under both keys, as an array even when empty', () => {
  const list = parseNetwork('{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"t","prevResult":{}}]}');
  const [entry] = list.plugins;
  if (entry === undefined) throw new Error('no entry');
  const keys = [{ containerID: 'c', ifname: 'eth0' }];
  expect(buildGcRequest(list, entry, keys)).toEqual({
    type: 't',
    name: 'n',
    cniVersion: '1.1.0',
    'cni.dev/valid-attachments': keys,
    'cni.dev/attachments': keys,
  });
  expect(buildGcRequest(list, entry, [])['cni.dev/valid-attachments']).toEqual([]);
});
