import { describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../../src/chain/config/conflist.ts';
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
  test('moves host ports, which only one container can have', () => {
    const given = { portMappings: [{ hostPort: 8080, containerPort: 80 }], bandwidth: { ingressRate: 1 } };
    expect(forNeighbour(given)).toEqual({
      portMappings: [{ hostPort: 8081, containerPort: 80 }],
      bandwidth: { ingressRate: 1 },
    });
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
