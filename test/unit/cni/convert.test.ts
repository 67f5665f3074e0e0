import { describe, expect, test } from 'bun:test';
import { layoutOf } from '../../../src/cni/convert.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { renderResult } from '../../../src/cni/result.ts';
import type { SpecVersion } from '../../../src/cni/version.ts';

const OLDEST: JsonObject = {
  cniVersion: '0.2.0',
  ip4: { ip: '10.1.0.2/24', gateway: '10.1.0.1', routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }] },
  ip6: { ip: 'fd00::2/64', routes: [{ dst: '::/0' }] },
  dns: { nameservers: ['10.1.0.1'] },
};
const VERSIONED: JsonObject = {
  cniVersion: '0.4.0',
  interfaces: [{ name: 'eth0', sandbox: '/ns' }],
  ips: [
    { version: '4', address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 },
    { version: '6', address: 'fd00::2/64', interface: 0 },
  ],
  routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1', mtu: 1400 }],
  dns: {},
  mine: { kept: 1 },
};
const CURRENT: JsonObject = {
  cniVersion: '1.1.0',
  interfaces: [{ name: 'eth0', sandbox: '/ns', mtu: 1500, socketPath: '/s', pciID: 'p', mine: 1 }],
  ips: [
    { address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 },
    { address: 'fd00::2/64', interface: 0 },
    { address: '10.1.0.3/24' },
  ],
  routes: [
    { dst: '0.0.0.0/0', gw: '10.1.0.1', mtu: 1400, priority: 5 },
    { dst: '::/0', table: 0 },
  ],
};

const up = (object: JsonObject, version: SpecVersion) => layoutOf(version).up(object);
const down = (object: JsonObject, version: SpecVersion) => renderResult(object, version);

describe('Layout.up()', () => {
  test('collects the addresses and routes of 0.2.0', () => {
    expect(up(OLDEST, '0.2.0')).toEqual({
      cniVersion: '0.2.0',
      ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }, { address: 'fd00::2/64' }],
      routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }, { dst: '::/0' }],
      dns: { nameservers: ['10.1.0.1'] },
    });
  });

  test('drops only the family of addresses of 0.4.0', () => {
    expect(up(VERSIONED, '0.4.0')).toEqual({
      ...VERSIONED,
      ips: [
        { address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 },
        { address: 'fd00::2/64', interface: 0 },
      ],
    });
  });

  test('leaves 1.x and the given object as they are', () => {
    const before = structuredClone(VERSIONED);
    up(VERSIONED, '0.3.1');
    expect(VERSIONED).toEqual(before);
    expect(up(CURRENT, '1.0.0')).toEqual(CURRENT);
  });
});

describe('Layout.down()', () => {
  test('to 1.0.0 keeps even what 1.1.0 added, as the reference does', () => {
    expect(down(CURRENT, '1.0.0')).toEqual({ ...CURRENT, cniVersion: '1.0.0' });
  });

  test.each(['0.3.0', '0.3.1', '0.4.0'] as const)(
    'to %s adds families and drops new interface keys',
    version => {
      expect(down(CURRENT, version)).toEqual({
        ...CURRENT,
        cniVersion: version,
        interfaces: [{ name: 'eth0', sandbox: '/ns', mine: 1 }],
        ips: [
          { version: '4', address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 },
          { version: '6', address: 'fd00::2/64', interface: 0 },
          { version: '4', address: '10.1.0.3/24' },
        ],
        dns: {},
      });
    },
  );

  test.each(['0.1.0', '0.2.0'] as const)(
    'to %s keeps the first address of each family with its routes',
    version => {
      expect(down(CURRENT, version)).toEqual({
        cniVersion: version,
        ip4: { ip: '10.1.0.2/24', gateway: '10.1.0.1', routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }] },
        ip6: { ip: 'fd00::2/64', routes: [{ dst: '::/0' }] },
        dns: {},
      });
    },
  );

  test('to 0.2.0 drops the routes of a family without address, and needs an address', () => {
    const only4 = { ips: [{ address: '10.1.0.2/24' }], routes: [{ dst: '::/0' }] };
    expect(down(only4, '0.2.0')).toEqual({ cniVersion: '0.2.0', ip4: { ip: '10.1.0.2/24' }, dns: {} });
    expect(() => down({ interfaces: [] }, '0.2.0')).toThrow(
      expect.objectContaining({ code: 7, message: expect.stringContaining('no valid IP addresses') }),
    );
  });

  test.each(['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const)(
    'to %s drops empty settings of dns, and keeps the others',
    version => {
      const ips = [{ address: '10.1.0.2/24' }];
      const lists = { nameservers: [], search: [], options: [] };
      expect(down({ ips, dns: { ...lists, domain: 'd' } }, version).dns).toEqual({ domain: 'd' });
      expect(down({ ips, dns: { ...lists, domain: '' } }, version)).toEqual(down({ ips }, version));
    },
  );

  test.each([{}, { nameservers: [], domain: '' }])('to 1.x drops the empty dns %j', dns => {
    expect(down({ dns }, '1.1.0')).toEqual({ cniVersion: '1.1.0' });
  });

  test('keeps unknown keys wherever the layout has an object for them', () => {
    const result = {
      mine: 1,
      ips: [{ address: '10.1.0.2/24', mine: 2 }],
      routes: [{ dst: '0.0.0.0/0', mine: 3 }],
      dns: { mine: '' },
    };
    const oldest = down(result, '0.2.0');
    expect(oldest).toEqual({
      cniVersion: '0.2.0',
      mine: 1,
      ip4: { ip: '10.1.0.2/24', mine: 2, routes: [{ dst: '0.0.0.0/0', mine: 3 }] },
      dns: { mine: '' },
    });
    expect(down(up(oldest, '0.2.0'), '1.1.0')).toEqual({ cniVersion: '1.1.0', ...result });
  });

  test('ignores keys of another layout', () => {
    expect(up({ ip4: { ip: '10.1.0.2/24' }, ips: 5, routes: 'x', interfaces: null }, '0.2.0')).toEqual({
      ips: [{ address: '10.1.0.2/24' }],
    });
    const result = { ip4: 5, ips: [{ address: '10.1.0.2/24', version: '6' }] };
    expect(down(result, '0.2.0')).toEqual({ cniVersion: '0.2.0', ip4: { ip: '10.1.0.2/24' }, dns: {} });
    expect(down(result, '0.4.0').ips).toEqual([{ version: '4', address: '10.1.0.2/24' }]);
  });

  test('treats an IPv4 address in IPv6 notation as IPv4', () => {
    expect(down({ ips: [{ address: '::ffff:10.1.0.2/120' }] }, '0.3.0').ips).toEqual([
      { version: '4', address: '::ffff:10.1.0.2/120' },
    ]);
  });

  test.each(['0.3.1', '1.0.0'] as const)('to %s drops empty arrays', version => {
    const empty = { interfaces: [], ips: [], routes: [] };
    expect(Object.keys(down(empty, version)).filter(key => key in empty)).toEqual([]);
  });

  test('puts cniVersion first and does not change its input', () => {
    const before = structuredClone(CURRENT);
    expect(Object.keys(down(CURRENT, '0.4.0'))[0]).toBe('cniVersion');
    expect(CURRENT).toEqual(before);
  });
});

test('layoutOf() returns one of three layouts', () => {
  expect(layoutOf('0.1.0')).toBe(layoutOf('0.2.0'));
  expect(layoutOf('0.3.0')).toBe(layoutOf('0.4.0'));
  expect(layoutOf('1.0.0')).toBe(layoutOf('1.1.0'));
  expect(layoutOf('0.2.0')).not.toBe(layoutOf('0.3.0'));
  expect(layoutOf('0.4.0')).not.toBe(layoutOf('1.0.0'));
});
