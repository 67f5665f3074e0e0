// Is every error code explained that our code can answer?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { SCHEMAS } from '../../../../plugins/build/published-schemas.ts';
import { KNOWN_TYPES, loadAbout } from '../../../../plugins/registry.ts';
import { parseNetwork } from '../../../../src/chain/config/conflist.ts';
import { explainCode } from '../../../../src/cli/commands/help.ts';
import { explainList, renderList } from '../../../../src/cli/validate/explain.ts';
import { ADDRESS_TAKEN, ErrorCode } from '../../../../src/cni/errors.ts';
import type { PluginCatalog } from '../../../../src/cni/plugin-about.ts';
import { ROOT } from '../../../helpers/source-tree.ts';

test('every code of the specification and of ours has an explanation', () => {
  const ours: readonly number[] = [...Object.values(ErrorCode), ADDRESS_TAKEN];
  for (const code of ours) {
    const { meaning = '', causes = [], advice = [] } = explainCode(code) ?? {};
    expect([code, causes.length > 0, advice.length > 0]).toEqual([code, true, true]);
    expect(meaning).not.toContain('Defined by the plugin');
  }
});

test('codes from 100 on are the plugins’, those below that nothing defines are not explained', () => {
  expect(explainCode(117)?.meaning).toContain('Defined by the plugin');
  expect(explainCode(42)).toBeUndefined();
});

const CONFLISTS = path.join(ROOT, 'conflists');

const catalog: PluginCatalog = { types: KNOWN_TYPES, find: loadAbout, schemas: async () => SCHEMAS };

const explain = (list: object) => explainList(parseNetwork(JSON.stringify(list)), catalog);

test.each(fs.readdirSync(CONFLISTS).filter(name => name.endsWith('.conflist')))(
  'every option of %s has a meaning',
  async file => {
    const text = fs.readFileSync(path.join(CONFLISTS, file), 'utf8');
    const { plugins } = await explainList(parseNetwork(text), catalog);
    const all = plugins.flatMap(one => (one.ipam ? [one, one.ipam] : [one]));
    const unknown = all.flatMap(({ type, options }) =>
      options.flatMap(({ name, meaning }) => (meaning === undefined ? [`${type}: ${name}`] : [])),
    );
    expect(unknown).toEqual([]);
    expect(all.filter(({ summary }) => summary === undefined)).toEqual([]);
  },
);

test('options are those of the list, defaults the rest', async () => {
  const ipam = { type: 'host-local', subnet: '10.1.0.0/24' };
  const bridge = { type: 'bridge', bridge: 'br7', ipMasq: true, isGateway: true, ipam };
  const portmap = { type: 'portmap', capabilities: { portMappings: true }, snat: false };
  const { plugins } = await explain({ cniVersion: '1.0.0', name: 'net', plugins: [bridge, portmap] });
  const [first, second] = plugins;
  expect(first?.options.map(({ name, value }) => [name, value])).toEqual([
    ['bridge', 'br7'],
    ['ipMasq', true],
    ['isGateway', true],
  ]);
  expect(first?.defaults.map(({ name }) => name)).not.toContain('bridge');
  expect(first?.effects).toEqual([
    'has device "br7" on the host, made if it is missing',
    'the container masquerades traffic to other subnets',
  ]);
  expect(first?.ipam?.effects).toEqual(['assigns 10.1.0.2 to 10.1.0.254; the gateway is 10.1.0.1']);
  expect(second).toMatchObject({ capabilities: ['portMappings'], idleWithout: 'portMappings' });
});

test('a value that is longer than a line is wrapped', async () => {
  const tuning = { type: 'tuning', sysctl: { 'net.core.somaxconn': '512', 'net.ipv4.tcp_syncookies': '1' } };
  const explained = await explain({ cniVersion: '1.0.0', name: 'net', plugins: [tuning] });
  const lines = renderList(explained, '/etc/cni/net.d', [], 60).split('\n');
  expect(lines.filter(line => line.length > 60)).toEqual([]);
  expect(lines.join(' ')).toMatch(/sysctl = \{"net.core.somaxconn": "512",/);
});

test('what a container is held to is said with a verb', async () => {
  const plugins = [
    { type: 'tuning', sysctl: { 'net.core.somaxconn': '512' } },
    { type: 'bandwidth', ingressRate: 8000, ingressBurst: 8000, shapedSubnets: ['10.0.0.0/8'] },
  ];
  const explained = await explain({ cniVersion: '1.0.0', name: 'net', plugins });
  expect(explained.plugins.map(({ effects }) => effects[0])).toEqual([
    'the container has net.core.somaxconn = 512',
    'the container is limited on the way from and to some subnets only',
  ]);
});

test('a third-party plugin, an unknown option and an impossible value are explained as far as possible', async () => {
  const bridge = { type: 'bridge', brigde: 'x', vlan: 'many', ipam: { type: 'theirs', pool: 7 } };
  const { plugins } = await explain({
    cniVersion: '1.0.0',
    name: 'net',
    plugins: [bridge, { type: 'their-own' }],
  });
  expect(plugins[0]?.options[0]).toEqual({ name: 'brigde', value: 'x' });
  expect(plugins[0]?.ipam).toMatchObject({ type: 'theirs', options: [{ name: 'pool', value: 7 }] });
  expect(plugins[1]).toEqual({
    ...{ type: 'their-own', options: [], defaults: [], capabilities: [], effects: [] },
  });
});

test('what the list says to all its plugins is explained as well', async () => {
  const ptp = { type: 'ptp', ipMasq: true, ipam: { type: 'host-local', subnet: '10.1.0.0/24' } };
  const list = { cniVersion: '1.1.0', name: 'net', disableCheck: true, own: 1, plugins: [ptp] };
  const { options } = await explain(list);
  expect(options).toEqual([
    {
      name: 'disableCheck',
      value: true,
      meaning: 'True: CHECK does nothing for this network. Since 0.4.0.',
    },
    { name: 'own', value: 1 },
  ]);
});

const IPAM = { type: 'host-local', subnet: '10.1.0.0/24' };
const OUT = [{ dst: '0.0.0.0/0' }];

test.each<[string, object, string]>([
  [
    'a bridge without a gateway',
    { type: 'bridge', ipam: IPAM },
    'host and containers do not reach each other',
  ],
  [
    'isolated ports',
    { type: 'bridge', portIsolation: true, ipam: IPAM },
    'on bridge "cni0" do not reach each other',
  ],
  ['a gateway', { type: 'bridge', isGateway: true, ipam: IPAM }, 'containers reach no other network'],
  [
    'a default gateway with masquerading',
    { type: 'bridge', isDefaultGateway: true, ipMasq: true, ipam: IPAM },
    'with an address of its own',
  ],
  [
    'a route alone',
    { type: 'ptp', ipam: { ...IPAM, routes: OUT } },
    'replies come only from machines with a route',
  ],
  [
    'a macvlan',
    { type: 'macvlan', master: 'eth0', ipam: IPAM },
    'host and containers do not reach each other',
  ],
  [
    'a macvlan with access',
    { type: 'macvlan', master: 'eth0', hostAccess: true, ipam: IPAM },
    'the host reaches containers by an interface of its own',
  ],
  ['an ipvlan', { type: 'ipvlan', mode: 'l3', ipam: IPAM }, 'without broadcasts and multicasts'],
])('who reaches whom: %s', async (_, plugin, sentence) => {
  const { reach } = await explain({ cniVersion: '1.1.0', name: 'net', plugins: [plugin] });
  expect(reach.join('\n')).toContain(sentence);
});

test('who reaches whom: meta plugins add to it, and what cannot be read says nothing', async () => {
  const bridge = { type: 'bridge', isGateway: true, ipam: IPAM };
  const firewall = { type: 'firewall', ingressPolicy: 'isolated' };
  const { reach } = await explain({
    cniVersion: '1.1.0',
    name: 'net',
    plugins: [bridge, { type: 'portmap' }, firewall],
  });
  expect(reach.slice(-2)).toEqual([
    "other machines reach published ports of a container at the host's addresses",
    'no container can connect to another one of this network',
  ]);
  const wrong = { type: 'bridge', bridge: 5, ipam: IPAM };
  expect((await explain({ cniVersion: '1.1.0', name: 'net', plugins: [wrong] })).reach).toEqual([]);
});
