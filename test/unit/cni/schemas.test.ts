import { expect, test } from 'bun:test';
import * as z from 'zod/mini';
import { parseConflist } from '../../../src/chain/config/conflist.ts';
import { decode, type JsonObject } from '../../../src/cni/json.ts';
import {
  Bandwidth,
  ConflistSchema,
  IpRange,
  ListedPlugin,
  PluginConfig,
  PortMapping,
} from '../../../src/cni/schemas.ts';

test('PortMapping accepts the spelling of containerd', () => {
  const value = { HostPort: 8080, ContainerPort: 80, Protocol: 'tcp', HostIP: '' };
  expect(decode(PortMapping, value, 'it')).toEqual({
    hostPort: 8080,
    containerPort: 80,
    protocol: 'tcp',
    hostIP: '',
  });
});

test.each([
  { hostPort: 0 },
  { hostPort: 65536 },
  { containerPort: 0 },
  { hostPort: 1.5 },
  { hostPort: '80' },
])('PortMapping refuses %j', wrong => {
  expect(() => decode(PortMapping, { hostPort: 8080, containerPort: 80, ...wrong }, 'it')).toThrow(
    'Cannot use it',
  );
});

test('Bandwidth accepts the spelling of containerd and bursts beyond 32 bits', () => {
  expect(decode(Bandwidth, { IngressRate: 1000, EgressBurst: 34359738359 }, 'it')).toEqual({
    ingressRate: 1000,
    egressBurst: 34359738359,
  });
  expect(() => decode(Bandwidth, { ingressRate: -1 }, 'it')).toThrow(
    '"ingressRate" must be at least 0, found -1',
  );
});

test('IpRange needs a subnet', () => {
  expect(decode(IpRange, { Subnet: '10.0.0.0/24', rangeStart: '10.0.0.9' }, 'it')).toEqual({
    subnet: '10.0.0.0/24',
    rangeStart: '10.0.0.9',
  });
  expect(() => decode(IpRange, {}, 'it')).toThrow('"subnet" must be of type string, it is missing');
});

const read = (value: unknown) => decode(PluginConfig, value, 'it');

test('PluginConfig keeps unknown keys', () => {
  const conf = { type: 't', mine: { a: 1 }, ipam: {}, dns: { domain: 'd' }, prevResult: { x: 1 } };
  expect(read(conf)).toEqual(conf);
});

test('PluginConfig accepts keys in any letter case, and treats null as absent', () => {
  expect(read({ Type: 't', CAPABILITIES: { a: true }, ipam: null })).toEqual({
    type: 't',
    capabilities: { a: true },
  });
});

test.each([
  [{ type: 1 }, '"type"'],
  [{ type: 't', name: 1 }, '"name"'],
  [{ type: 't', cniVersion: 1 }, '"cniVersion"'],
  [{ type: 't', capabilities: [] }, '"capabilities"'],
  [{ type: 't', capabilities: { a: 'true' } }, '"capabilities.a"'],
  [{ type: 't', ipam: 'host-local' }, '"ipam"'],
  [{ type: 't', ipam: { type: 1 } }, '"ipam.type"'],
  [{ type: 't', dns: { nameservers: 'x' } }, '"dns.nameservers"'],
  [{ type: 't', prevResult: [] }, '"prevResult"'],
  [
    { type: 't', 'cni.dev/valid-attachments': [{ containerID: 'c' }] },
    '"cni.dev/valid-attachments[0].ifname"',
  ],
])('PluginConfig refuses %j', (value, where) => {
  expect(() => read(value)).toThrow(where);
});

test('a plugin may be called without its "type", but a list may not omit it', () => {
  for (const value of [{}, { type: '' }, { type: null }]) {
    expect(() => read(value)).not.toThrow();
    expect(() => decode(ListedPlugin, value, 'it')).toThrow('"type"');
  }
});

const PLUGINS = [{ type: 'bridge', capabilities: { mac: true }, ipam: {}, own: 1 }];
const GOOD = { cniVersion: '1.1.0', name: 'podnet', plugins: PLUGINS };

const VALUES: Readonly<Record<string, readonly unknown[]>> = {
  name: ['a', '9', 'a.b_c-d', 'A', '', '.a', '-a', 'a/b', '../x', 'a b', 'a\n', 'ä', 5, null, undefined, []],
  cniVersion: ['', '1.0.0', undefined, 1, null, []],
  cniVersions: [[], ['1.0.0'], undefined, '1.0.0', [1], null],
  disableCheck: [true, false, 'true', 'FALSE', 'tRuE', undefined, 'yes', '', 1, null, 'true '],
  disableGC: [true, 'false', 0, null],
  loadOnlyInlinedPlugins: [true, 'true', {}, null],
  plugins: [
    ...[undefined, [], null, {}, 'bridge'],
    ...[[5], [null], [{}], [{ type: '' }], [{ type: 5 }], [{ type: 'a' }, 'b']],
    ...[
      [{ type: 'a', capabilities: ['x'] }],
      [{ type: 'a', capabilities: { x: 1 } }],
      [{ type: 'a', ipam: 'b' }],
    ],
    ...[
      [{ type: 'a', dns: { search: 'b' } }],
      [{ type: 'a', name: 5 }],
      [{ type: '../a', ipam: { type: 'b' } }],
    ],
  ],
  other: [1, null, {}],
};

const CASES = Object.entries(VALUES).flatMap(([key, values]) =>
  values.map(value => ({ ...GOOD, [key]: value })),
);

test.each(CASES.map(list => [JSON.stringify(list), list] as const))(
  'ConflistSchema accepts and refuses the same as parseConflist(): %s',
  (_, list) => {
    const given = Object.fromEntries(Object.entries(list).filter(([, value]) => value !== undefined));
    expect(z.safeParse(ConflistSchema, given).success).toBe(isTaken(given));
  },
);

function isTaken(list: JsonObject): boolean {
  try {
    parseConflist(list);
    return true;
  } catch {
    return false;
  }
}
