import { describe, expect, test } from 'bun:test';
import type { JsonObject } from '../../../src/cni/json.ts';
import {
  convertResult,
  parseResult,
  prevResultOf,
  renderResult,
  resultVersionOf,
} from '../../../src/cni/result.ts';
import { SPEC_VERSIONS } from '../../../src/cni/version.ts';

const RESULT: JsonObject = {
  cniVersion: '1.1.0',
  interfaces: [{ name: 'eth0', mac: '0a:58:0a:01:00:02', sandbox: '/ns' }],
  ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 }],
  routes: [{ dst: '0.0.0.0/0', scope: 0 }],
  mine: 1,
};

describe('parseResult()', () => {
  test('uses the version of the object, else the fallback, and drops it', () => {
    const old = { ips: [{ version: '4', address: '10.1.0.2/24' }] };
    expect(parseResult({ ...old, cniVersion: '0.4.0' }, '1.1.0')).toEqual({
      ips: [{ address: '10.1.0.2/24' }],
    });
    expect(parseResult(old, '0.4.0')).toEqual({ ips: [{ address: '10.1.0.2/24' }] });
    expect(parseResult({ ...old, cniVersion: '' }, '0.4.0')).toEqual({ ips: [{ address: '10.1.0.2/24' }] });
  });

  test('folds the letter case of every layout', () => {
    const oldest = {
      cniVersion: '0.2.0',
      IP4: { Ip: '10.1.0.2/24', GATEWAY: '10.1.0.1', Routes: [{ DST: '0.0.0.0/0' }] },
    };
    expect(parseResult(oldest, '1.1.0')).toEqual({
      ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }],
      routes: [{ dst: '0.0.0.0/0' }],
    });
    const versioned = { cniVersion: '0.4.0', Ips: [{ VERSION: '4', Address: '10.1.0.2/24' }] };
    expect(parseResult(versioned, '1.1.0')).toEqual({ ips: [{ address: '10.1.0.2/24' }] });
  });

  test('keeps unknown keys and folds the letter case of known ones', () => {
    const { cniVersion: _, ...rest } = RESULT;
    expect(parseResult(RESULT, '1.1.0')).toEqual(rest as never);
    expect(parseResult({ IPs: [{ Address: '10.1.0.2/24' }], dns: null }, '1.1.0')).toEqual({
      ips: [{ address: '10.1.0.2/24' }],
    });
  });

  test.each([
    [{ ips: [{}] }, 6, '"ips[0].address" must be of type string, it is missing'],
    [
      { ips: [{ address: '10.1.0.2' }] },
      6,
      '"ips[0].address" must be an address with a prefix length, found "10.1.0.2"',
    ],
    [{ ips: [{ address: '<nil>' }] }, 6, '"ips[0].address"'],
    [
      { ips: [{ address: '10.1.0.2/24', gateway: 'x' }] },
      6,
      '"ips[0].gateway" must be an address, found "x"',
    ],
    [{ ips: [{ address: '10.1.0.2/24', interface: 1.5 }] }, 6, '"ips[0].interface"'],
    [{ ips: [null] }, 6, '"ips[0]"'],
    [{ ips: {} }, 6, '"ips"'],
    [{ interfaces: [{ mac: 'x' }] }, 6, '"interfaces[0].name"'],
    [{ routes: [{ gw: '10.0.0.1' }] }, 6, '"routes[0].dst"'],
    [{ routes: [{ dst: '10.0.0.0/8', mtu: '1' }] }, 6, '"routes[0].mtu"'],
    [{ dns: [] }, 6, '"dns"'],
    [{ cniVersion: '9.9.9' }, 1, 'unsupported CNI result version "9.9.9"'],
    [{ cniVersion: '0.2.0', ip4: {} }, 6, '"ip4.ip" must be of type string, it is missing'],
    [
      { cniVersion: '0.2.0', IP6: { IP: 'fd00::2/64', Routes: [{ dst: 'x' }] } },
      6,
      '"ip6.routes[0].dst" must be an address',
    ],
    [{ cniVersion: '0.4.0', ips: [{ version: 4, address: '10.0.0.2/24' }] }, 6, '"ips[0].version"'],
  ])('refuses %j', (object, code, message) => {
    expect(() => parseResult(object as JsonObject, '1.1.0')).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(message) }),
    );
  });

  test.each([-1, 0, 7])('accepts the interface index %d, whose range is for the reader to check', index => {
    const object = { ips: [{ address: '10.1.0.2/24', gateway: '', interface: index }] };
    expect(parseResult(object, '1.1.0').ips?.[0]?.interface).toBe(index);
  });
});

test('resultVersionOf() treats a version that is not text as missing', () => {
  expect(resultVersionOf({ cniVersion: 7 }, '0.4.0')).toBe('0.4.0');
});

describe('convertResult()', () => {
  test.each([...SPEC_VERSIONS])('to %s and back keeps address, gateway and route', version => {
    const back = convertResult(convertResult(RESULT, version), '1.1.0');
    expect(back).toMatchObject({
      cniVersion: '1.1.0',
      ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }],
    });
    expect(back.routes).toHaveLength(1);
    expect(back.mine).toBe(1);
  });

  test('changes only the version within a layout', () => {
    expect(convertResult(RESULT, '1.0.0')).toEqual({ ...RESULT, cniVersion: '1.0.0' });
    expect(convertResult({ cniVersion: '0.1.0', dns: {} }, '0.2.0')).toEqual({
      cniVersion: '0.2.0',
      dns: {},
    });
    expect(() => convertResult({ cniVersion: '1.0.0', ips: [{}] }, '1.1.0')).toThrow('"ips[0].address"');
  });

  test('treats a result without version as 0.1.0', () => {
    expect(convertResult({ ip4: { ip: '10.1.0.2/24' } }, '1.0.0')).toEqual({
      cniVersion: '1.0.0',
      ips: [{ address: '10.1.0.2/24' }],
    });
  });
});

test('renderResult() puts the version first', () => {
  expect(Object.keys(renderResult({ ips: [] }, '0.3.1'))).toEqual(['cniVersion', 'dns']);
});

describe('prevResultOf()', () => {
  test('reads it in its own version, else the version of the request', () => {
    const ips = [{ version: '4', address: '10.1.0.2/24' }];
    const expected = { ips: [{ address: '10.1.0.2/24' }] };
    expect(prevResultOf({ prevResult: { cniVersion: '0.3.1', ips } }, '1.1.0')).toEqual(expected);
    expect(prevResultOf({ prevResult: { ips } }, '0.4.0')).toEqual(expected);
  });

  test('returns none when it is absent', () => {
    expect(prevResultOf({}, '1.1.0')).toBeUndefined();
    expect(prevResultOf({ prevResult: null }, '1.1.0')).toBeUndefined();
  });

  test('refuses a value that is not an object', () => {
    expect(() => prevResultOf({ prevResult: [] }, '1.1.0')).toThrow(
      expect.objectContaining({ code: 7, message: 'Cannot use "prevResult": expected an object' }),
    );
  });
});
