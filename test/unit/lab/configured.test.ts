import { describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../../src/chain/config/conflist.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { configurePlugins, forNeighbour, offerCapabilities } from '../../../src/lab/configured.ts';

const network = (...plugins: object[]) =>
  parseNetwork(JSON.stringify({ cniVersion: '1.0.0', name: 'n', plugins }));

describe('offerCapabilities()', () => {
  test('offers what a plugin declares, and nothing else', () => {
    expect(offerCapabilities(network({ type: 'a' }), {})).toEqual({});
    const list = network({ type: 'a', capabilities: { portMappings: true, mac: true, bandwidth: false } });
    expect(Object.keys(offerCapabilities(list, {}))).toEqual(['portMappings']);
  });

  test('maps one TCP and one UDP port', () => {
    const list = network({ type: 'a', capabilities: { portMappings: true } });
    const { portMappings } = offerCapabilities(list, {});
    expect(portMappings).toMatchObject([{ protocol: 'tcp' }, { protocol: 'udp' }]);
  });

  test('keeps rates that the file sets', () => {
    const list = network({ type: 'a', capabilities: { bandwidth: true }, ingressRate: 5 });
    expect(offerCapabilities(list, {})).toEqual({});
  });

  test('prefers the given values', () => {
    const list = network({ type: 'a', capabilities: { portMappings: true } });
    expect(offerCapabilities(list, { portMappings: [], mac: 'x' })).toEqual({ portMappings: [], mac: 'x' });
  });
});

describe('forNeighbour()', () => {
  const capabilitiesFor = (capabilityArgs: JsonObject) => forNeighbour({ capabilityArgs }).capabilityArgs;

  test('moves host ports, which only one container can have', () => {
    const given = { portMappings: [{ hostPort: 8080, containerPort: 80 }], bandwidth: { ingressRate: 1 } };
    expect(capabilitiesFor(given)).toEqual({
      portMappings: [{ hostPort: 8081, containerPort: 80 }],
      bandwidth: { ingressRate: 1 },
    });
  });

  test.each([
    [
      [8080, 8081],
      [8082, 8083],
    ],
    [[65_535], [1]],
    [
      [53, 53],
      [54, 54],
    ],
    [[0], [0]],
  ])('moves host ports %p to %p', (ports, others) => {
    const { portMappings } = capabilitiesFor({ portMappings: ports.map(hostPort => ({ hostPort })) }) ?? {};
    expect(portMappings).toEqual(others.map(hostPort => ({ hostPort })));
  });

  test('gives another hardware address, and leaves what is none to the plugin', () => {
    expect(capabilitiesFor({ mac: '02-00-00-00-00-07' })).toEqual({ mac: '02:00:00:00:00:06' });
    expect(capabilitiesFor({ mac: 'x' })).toEqual({ mac: 'x' });
    const args = [
      ['IgnoreUnknown', '1'],
      ['MAC', '02:00:00:00:00:08'],
    ] as const;
    expect(forNeighbour({ args }).args).toEqual([args[0], ['MAC', '02:00:00:00:00:09']]);
  });
});

describe('configurePlugins()', () => {
  test('gives each plugin the arguments that it declares', () => {
    const list = network({ type: 'a', capabilities: { mac: true } }, { type: 'b' });
    const plugins = configurePlugins(list, { mac: 'x', ips: ['y'] });
    expect(plugins.map(({ type, runtimeConfig }) => [type, runtimeConfig])).toEqual([
      ['a', { mac: 'x' }],
      ['b', {}],
    ]);
  });
});
