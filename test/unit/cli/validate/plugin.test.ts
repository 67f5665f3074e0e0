// Does validate find the mistakes that people make in their first lists?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { KNOWN_TYPES, loadAbout } from '../../../../plugins/registry.ts';
import { NO_EXECUTABLES } from '../../../../src/cli/validate/executables.ts';
import { validatePath } from '../../../../src/cli/validate/validate.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-newcomer-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const CATALOG = { types: KNOWN_TYPES, find: loadAbout, schemas: async () => ({}) };

async function validate(name: string, content: unknown): Promise<string[]> {
  const file = path.join(dir, name);
  fs.writeFileSync(file, JSON.stringify(content));
  const { findings } = await validatePath(file, CATALOG, NO_EXECUTABLES);
  return findings.map(({ severity, rule, message }) => `${severity} ${rule} ${message}`);
}

const SUBNET = { subnet: '10.1.0.0/24' };
const leased = (range: object = {}) => ({ type: 'host-local', ranges: [[{ ...SUBNET, ...range }]] });
const list = (...plugins: unknown[]) => ({ cniVersion: '1.0.0', name: 'podnet', plugins });

test.each<[string, unknown, string[]]>([
  [
    'a gateway outside of its subnet',
    list({ type: 'bridge', isGateway: true, ipam: leased({ gateway: '10.2.0.1' }) }),
    [
      'warning option gateway 10.2.0.1 is outside of the subnet 10.1.0.0/24: containers look for it on their link, where it needs a route back to them',
    ],
  ],
  [
    'the same for a macvlan',
    list({ type: 'macvlan', ipam: leased({ gateway: '10.2.0.1' }) }),
    [
      'warning option gateway 10.2.0.1 is outside of the subnet 10.1.0.0/24: containers look for it on their link, where it needs a route back to them',
    ],
  ],
  // It makes a route to the gateway.
  ['not for ptp', list({ type: 'ptp', ipam: leased({ gateway: '169.254.1.1' }) }), []],
  [
    'masquerading without a gateway',
    list({ type: 'bridge', ipMasq: true, ipam: leased() }),
    [
      'warning option "ipMasq" does nothing unless containers send their packets through the bridge: set "isGateway" or "isDefaultGateway" as well',
    ],
  ],
  [
    'a gateway that is refused and wanted',
    list({ type: 'bridge', isgateway: false, isDefaultGateway: true, ipam: leased() }),
    ['warning option "isGateway" is false, but "isDefaultGateway" makes the bridge a gateway nevertheless'],
  ],
  [
    'the loopback device as a bridge',
    list({ type: 'bridge', bridge: 'lo' }),
    [
      'error option Cannot use bridge configuration: "bridge" is "lo", which is the loopback device of every host',
    ],
  ],
  [
    'a single configuration in a file for lists',
    { cniVersion: '0.3.1', name: 'podnet', type: 'bridge' },
    [
      'error file-name no runtime loads this file: it is a single plugin configuration, not a list; name the file .conf, or put the configuration in "plugins" of a list',
    ],
  ],
  ['nothing in a list without a mistake', list({ type: 'bridge', isGateway: true, ipam: leased() }), []],
])('%s', async (_, content, expected) => {
  expect(await validate('10.conflist', content)).toEqual(expected);
});

test('a list in a file for single configurations', async () => {
  const [finding = ''] = await validate('10.conf', list({ type: 'loopback' }));
  expect(finding).toStartWith('error file-name no runtime loads this file');
});

test('a value of a wrong type, a wrong option and a wrong version in one look', async () => {
  const plugin = { type: 'bridge', mtu: 'large', hairpinMode: true, promiscMode: true };
  const findings = await validate('10.conflist', { ...list(plugin), cniVersion: '9.0.0' });
  expect(findings).toEqual([
    expect.stringContaining('error version'),
    expect.stringContaining('error shape "mtu" must be a number of bytes'),
    expect.stringContaining('error option Cannot use bridge configuration: "hairpinMode" and "promiscMode"'),
  ]);
});

test('a wrong value does not make another finding of what depends on it', async () => {
  expect(await validate('10.conflist', list({ type: 'bridge', ipMasqBackend: 7, vlan: 'x' }))).toEqual([
    expect.stringContaining('error shape'),
    expect.stringContaining('error shape'),
  ]);
});
