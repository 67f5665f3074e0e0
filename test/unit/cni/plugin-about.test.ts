import { describe, expect, test } from 'bun:test';
import { KNOWN_TYPES, loadAbout } from '../../../plugins/registry.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import {
  backupDirsOf,
  devicesOf,
  ipamTypeIn,
  leaseDirsOf,
  loadAbouts,
  rangesOf,
  typesOf,
} from '../../../src/cni/plugin-about.ts';

const find = await loadAbouts(loadAbout, KNOWN_TYPES);
const list = (...confs: JsonObject[]) => ({ name: 'podnet', plugins: confs.map(conf => ({ conf })) });
const leased = (more: JsonObject, type = 'bridge') => ({ type, ipam: { type: 'host-local', ...more } });

describe('typesOf()', () => {
  test('lists IPAM plugins after the plugin that calls them', () => {
    expect(typesOf(list(leased({}), { type: 'tuning' }, { type: 1, ipam: { type: '' } }))).toEqual([
      'bridge',
      'host-local',
      'tuning',
    ]);
  });
});

test.each<[JsonObject, string | undefined]>([
  [{ ipam: { type: 'host-local' } }, 'host-local'],
  [{ IPAM: { Type: 'host-local' } }, 'host-local'],
  [{ ipam: { type: '' } }, undefined],
  [{ ipam: null }, undefined],
])('ipamTypeIn() reads %j as Go does', (conf, type) => {
  expect(ipamTypeIn(conf)).toBe(type);
  expect(typesOf(list(conf))).toEqual(type === undefined ? [] : [type]);
});

describe('leaseDirsOf()', () => {
  test.each([
    ['the default', leased({}), ['/var/lib/cni/networks/podnet']],
    ['the configured one', leased({ dataDir: '/leases' }), ['/leases/podnet']],
    ['that of an invalid configuration', leased({ dataDir: '/leases', ranges: 1 }), ['/leases/podnet']],
    [
      'that of a third-party main plugin',
      leased({ dataDir: 1 }, 'macvlan'),
      ['/var/lib/cni/networks/podnet'],
    ],
    ['none without leases', { type: 'bridge', ipam: { type: 'dhcp' } }, []],
  ])('finds %s', (_, conf, dirs) => {
    expect(leaseDirsOf(list(conf, conf), find)).toEqual(dirs);
  });
});

test('backupDirsOf() finds where values from before are kept', () => {
  const conf = list({ type: 'tuning' }, { type: 'tuning', dataDir: '/kept' }, { type: 'bridge' });
  expect(backupDirsOf(conf, find)).toEqual(['/run/cni/tuning', '/kept']);
});

describe('rangesOf()', () => {
  test('finds ranges with their sets, and leaves out those of an invalid configuration', () => {
    const ranges = [[{ subnet: '10.2.0.0/24' }, { subnet: '10.3.0.0/24', rangeEnd: '10.3.0.9' }]];
    const conf = list(leased({ subnet: '10.1.0.0/24', ranges }), leased({ subnet: '10.4.0.1/24' }));
    expect(rangesOf(conf, find).map(({ range, leaseDir }) => [range.text, range.set, leaseDir])).toEqual([
      ['10.1.0.0/24', 0, '/var/lib/cni/networks/podnet'],
      ['10.2.0.0/24', 1, '/var/lib/cni/networks/podnet'],
      ['10.3.0.0/24 -10.3.0.9', 1, '/var/lib/cni/networks/podnet'],
    ]);
  });
});

test('devicesOf() finds devices of the host with their MTU', () => {
  const conf = list(
    { type: 'bridge' },
    { type: 'bridge', bridge: 'br1', mtu: 9000 },
    { type: 'ptp', mtu: 0 },
  );
  expect(devicesOf(conf, find)).toEqual([
    { type: 'bridge', name: 'cni0', mtu: 1500 },
    { type: 'bridge', name: 'br1', mtu: 9000 },
    { type: 'ptp', mtu: 1500 },
  ]);
});
