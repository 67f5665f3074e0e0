// What becomes of a result in every version? (reference notes "Layouts" and "Conversion matrix")

import { describe, expect, test } from 'bun:test';
import type { JsonObject } from '../../src/cni/json.ts';
import { convertResult, SPEC_VERSIONS, type SpecVersion } from '../../src/cni/result.ts';

type Family = 'A' | 'B' | 'C';
const VERSIONS: Readonly<Record<Family, readonly SpecVersion[]>> = {
  A: ['0.1.0', '0.2.0'],
  B: ['0.3.0', '0.3.1', '0.4.0'],
  C: ['1.0.0', '1.1.0'],
};

interface Row {
  readonly name: string;
  readonly from: Family;
  readonly to: Family;
  readonly given: JsonObject;
  /** Without `cniVersion`, which is always the exact target. */
  readonly expected: JsonObject;
}

const route4 = { dst: '0.0.0.0/0', gw: '10.0.0.1' };
const route6 = { dst: '::/0', gw: 'fd00::1' };
const extras = { mtu: 1400, advmss: 1360, priority: 5, table: 0, scope: 253 };
const eth0 = { name: 'eth0', mac: '0a:00:00:00:00:01', sandbox: '/ns' };
const modern = { mtu: 1500, socketPath: '/s', pciID: '0000:00:1f.6' };
const dns = { nameservers: ['10.0.0.1'], domain: 'd', search: ['s'], options: ['o'] };

const A = {
  ip4: { ip: '10.0.0.2/24', gateway: '10.0.0.1', routes: [route4] },
  ip6: { ip: 'fd00::2/64', routes: [route6] },
  dns,
};
const B = {
  interfaces: [{ name: 'veth' }, eth0],
  ips: [
    { version: '6', address: 'fd00::2/64', interface: 1 },
    { version: '4', address: '10.0.0.2/24', gateway: '10.0.0.1', interface: 0 },
    { version: '4', address: '10.0.0.3/24' },
  ],
  routes: [{ ...route6, ...extras }, route4],
  dns,
};
const withoutVersion = B.ips.map(({ version: _, ...ip }) => ip);

const ROWS: readonly Row[] = [
  { name: 'is relabelled', from: 'A', to: 'A', given: A, expected: A },
  {
    name: 'needs no address to be relabelled',
    from: 'A',
    to: 'A',
    given: { dns: {} },
    expected: { dns: {} },
  },
  {
    name: 'gets ip4 before ip6, their routes in that order, no interfaces and no indexes',
    from: 'A',
    to: 'B',
    given: { ...A, ip4: { ip: '10.0.0.2/24', gateway: '10.0.0.1', routes: [route4] } },
    expected: {
      ips: [
        { version: '4', address: '10.0.0.2/24', gateway: '10.0.0.1' },
        { version: '6', address: 'fd00::2/64' },
      ],
      routes: [route4, route6],
      dns,
    },
  },
  {
    name: 'always has dns',
    from: 'A',
    to: 'B',
    given: { ip6: { ip: 'fd00::2/64' } },
    expected: { ips: [{ version: '6', address: 'fd00::2/64' }], dns: {} },
  },
  {
    name: 'gets addresses without family',
    from: 'A',
    to: 'C',
    given: A,
    expected: {
      ips: [{ address: '10.0.0.2/24', gateway: '10.0.0.1' }, { address: 'fd00::2/64' }],
      routes: [route4, route6],
      dns,
    },
  },
  {
    name: 'loses empty dns',
    from: 'A',
    to: 'C',
    given: { ip4: { ip: '10.0.0.2/24' }, dns: {} },
    expected: { ips: [{ address: '10.0.0.2/24' }] },
  },
  {
    name: 'keeps the first address of each family and its routes, which know dst and gw',
    from: 'B',
    to: 'A',
    given: B,
    expected: A,
  },
  {
    name: 'loses the routes of a family without address',
    from: 'B',
    to: 'A',
    given: { ips: [{ version: '4', address: '10.0.0.2/24' }], routes: [route6] },
    expected: { ip4: { ip: '10.0.0.2/24' }, dns: {} },
  },
  { name: 'is relabelled', from: 'B', to: 'B', given: B, expected: B },
  {
    name: 'loses nothing but the family',
    from: 'B',
    to: 'C',
    given: B,
    expected: { ...B, ips: withoutVersion },
  },
  { name: 'loses empty dns', from: 'B', to: 'C', given: { dns: { search: [] } }, expected: {} },
  {
    name: 'is converted by way of 0.4.0',
    from: 'C',
    to: 'A',
    given: { interfaces: [{ ...eth0, ...modern }], ips: withoutVersion, routes: B.routes, dns },
    expected: A,
  },
  {
    name: 'gets the family from the address and loses interface keys of 1.1.0',
    from: 'C',
    to: 'B',
    given: {
      interfaces: [{ ...eth0, ...modern }],
      ips: [
        { address: '::ffff:10.0.0.2/120', interface: 0 },
        { address: 'fd00::2/64', interface: -1 },
      ],
      routes: [{ ...route4, ...extras }],
    },
    expected: {
      interfaces: [eth0],
      ips: [
        { version: '4', address: '::ffff:10.0.0.2/120', interface: 0 },
        { version: '6', address: 'fd00::2/64', interface: -1 },
      ],
      routes: [{ ...route4, ...extras }],
      dns: {},
    },
  },
  {
    name: 'is relabelled, keys of 1.1.0 included',
    from: 'C',
    to: 'C',
    given: {
      interfaces: [{ ...eth0, ...modern }],
      ips: withoutVersion,
      routes: [{ ...route4, ...extras }],
      dns,
    },
    expected: {
      interfaces: [{ ...eth0, ...modern }],
      ips: withoutVersion,
      routes: [{ ...route4, ...extras }],
      dns,
    },
  },
];

const CASES = ROWS.flatMap(row =>
  VERSIONS[row.from].flatMap(from => VERSIONS[row.to].map(to => [from, to, row.name, row] as const)),
);

describe('a result', () => {
  test.each(CASES)('from %s converted to %s %s', (from, to, _, { given, expected }) => {
    const before = structuredClone(given);
    const converted = convertResult({ cniVersion: from, ...given }, to);
    expect(converted).toEqual({ cniVersion: to, ...expected });
    // Once more changes nothing, and the given one is as it was.
    expect(convertResult(converted, to)).toEqual(converted);
    expect(given).toEqual(before);
  });

  test.each([...VERSIONS.B, ...VERSIONS.C].flatMap(from => VERSIONS.A.map(to => [from, to] as const)))(
    'from %s without any address cannot become one of %s',
    (from, to) => {
      for (const given of [{}, { interfaces: [eth0] }, { ips: [], routes: [route4] }]) {
        expect(() => convertResult({ cniVersion: from, ...given }, to)).toThrow(
          expect.objectContaining({ code: 7, message: expect.stringContaining('no valid IP addresses') }),
        );
      }
    },
  );

  test.each([...SPEC_VERSIONS])('without version counts as 0.1.0, also when converted to %s', version => {
    expect(convertResult({ ip4: { ip: '10.0.0.2/24' }, dns: {} }, version)).toEqual(
      convertResult({ cniVersion: '0.1.0', ip4: { ip: '10.0.0.2/24' }, dns: {} }, version),
    );
  });

  test.each([...SPEC_VERSIONS])('of an unknown version cannot become one of %s', version => {
    expect(() => convertResult({ cniVersion: '0.5.0' }, version)).toThrow(
      expect.objectContaining({ code: 1 }),
    );
  });

  test('loses empty arrays, and keeps index 0, table 0 and scope 0', () => {
    const given = {
      cniVersion: '1.1.0',
      interfaces: [],
      ips: [{ address: '10.0.0.2/24', interface: 0 }],
      routes: [{ dst: '0.0.0.0/0', table: 0, scope: 0 }],
    };
    expect(convertResult(given, '0.4.0')).toEqual({
      cniVersion: '0.4.0',
      ips: [{ version: '4', address: '10.0.0.2/24', interface: 0 }],
      routes: [{ dst: '0.0.0.0/0', table: 0, scope: 0 }],
      dns: {},
    });
  });
});
