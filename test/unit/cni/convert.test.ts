import { describe, expect, test } from 'bun:test';
import { convertDown, convertUp, sameLayout } from '../../../src/cni/convert.ts';
import type { JsonObject } from '../../../src/cni/json.ts';

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

describe('convertUp()', () => {
  test('gathers the addresses and routes of 0.2.0', () => {
    expect(convertUp(OLDEST, '0.2.0')).toEqual({
      cniVersion: '0.2.0',
      ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }, { address: 'fd00::2/64' }],
      routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }, { dst: '::/0' }],
      dns: { nameservers: ['10.1.0.1'] },
    });
  });

  test('drops the family of addresses of 0.4.0, and nothing else', () => {
    expect(convertUp(VERSIONED, '0.4.0')).toEqual({
      ...VERSIONED,
      ips: [
        { address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 },
        { address: 'fd00::2/64', interface: 0 },
      ],
    });
  });

  test('leaves 1.x and the given object as they are', () => {
    const before = structuredClone(VERSIONED);
    convertUp(VERSIONED, '0.3.1');
    expect(VERSIONED).toEqual(before);
    expect(convertUp(CURRENT, '1.0.0')).toEqual(CURRENT);
  });
});

describe('convertDown()', () => {
  test('to 1.0.0 keeps even what 1.1.0 added, as the reference does', () => {
    expect(convertDown(CURRENT, '1.0.0')).toEqual({ ...CURRENT, cniVersion: '1.0.0' });
  });

  test.each(['0.3.0', '0.3.1', '0.4.0'] as const)(
    'to %s adds families and drops new interface keys',
    version => {
      expect(convertDown(CURRENT, version)).toEqual({
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
      expect(convertDown(CURRENT, version)).toEqual({
        cniVersion: version,
        ip4: { ip: '10.1.0.2/24', gateway: '10.1.0.1', routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }] },
        ip6: { ip: 'fd00::2/64', routes: [{ dst: '::/0' }] },
        dns: {},
      });
    },
  );

  test('to 0.2.0 drops the routes of a family without address, and needs an address', () => {
    const only4 = { ips: [{ address: '10.1.0.2/24' }], routes: [{ dst: '::/0' }] };
    expect(convertDown(only4, '0.2.0')).toEqual({ cniVersion: '0.2.0', ip4: { ip: '10.1.0.2/24' }, dns: {} });
    expect(() => convertDown({ interfaces: [] }, '0.2.0')).toThrow(
      expect.objectContaining({ code: 7, message: expect.stringContaining('no valid IP addresses') }),
    );
  });

  test.each([{}, { nameservers: [], domain: '' }])('to 1.x leaves the empty dns %j out', dns => {
    expect(convertDown({ dns }, '1.1.0')).toEqual({ cniVersion: '1.1.0' });
  });

  test('puts cniVersion first and changes nothing of what it was given', () => {
    const before = structuredClone(CURRENT);
    expect(Object.keys(convertDown(CURRENT, '0.4.0'))[0]).toBe('cniVersion');
    expect(CURRENT).toEqual(before);
  });
});

test('sameLayout() knows the three layouts', () => {
  expect(sameLayout('0.1.0', '0.2.0')).toBe(true);
  expect(sameLayout('0.3.0', '0.4.0')).toBe(true);
  expect(sameLayout('1.0.0', '1.1.0')).toBe(true);
  expect(sameLayout('0.2.0', '0.3.0')).toBe(false);
  expect(sameLayout('0.4.0', '1.0.0')).toBe(false);
});
