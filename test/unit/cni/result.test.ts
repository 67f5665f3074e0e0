import { describe, expect, test } from 'bun:test';
import type { JsonObject } from '../../../src/cni/json.ts';
import {
  atLeast,
  convertResult,
  incompatible,
  isSpecVersion,
  layoutOf,
  parseResult,
  prevResultOf,
  renderResult,
  resultVersionOf,
  SPEC_VERSIONS,
  type SpecVersion,
} from '../../../src/cni/result.ts';

test('isSpecVersion() accepts exact texts only', () => {
  for (const version of SPEC_VERSIONS) expect(isSpecVersion(version)).toBe(true);
  for (const text of ['', '1.0', 'v1.0.0', '1.0.0 ', '0.3.2', '1.2.0'])
    expect(isSpecVersion(text)).toBe(false);
});

test('atLeast() orders as released', () => {
  expect(atLeast('1.0.0', '0.4.0')).toBe(true);
  expect(atLeast('0.4.0', '0.4.0')).toBe(true);
  expect(atLeast('0.3.1', '0.4.0')).toBe(false);
});

test('incompatible() uses the wording of the reference', () => {
  expect(incompatible('0.9.0', ['0.3.1', '1.0.0']).toReply('1.0.0')).toEqual({
    cniVersion: '1.0.0',
    code: 1,
    msg: 'incompatible CNI versions',
    details: 'config is "0.9.0", plugin supports ["0.3.1" "1.0.0"]',
  });
});

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
