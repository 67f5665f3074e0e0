// What does the container get of the network that the device had, and what of IPAM's?
import { expect, test } from 'bun:test';
import { isMeant, mergeNetworks, networkOf, rulesFor } from '../../../../plugins/host-device/move.ts';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';
import type { Route } from '../../../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../../../src/netlink/rtnl/rule.ts';

const ROUTES: Route[] = [
  {
    dst: parseCidr('203.0.113.0/24'),
    gateway: parseIp('192.0.2.1'),
    oif: 3,
    table: 100,
    scope: 0,
    priority: 7,
  },
  { dst: parseCidr('0.0.0.0/0'), oif: 3, table: 254, scope: 253 },
];

test('networkOf() names gateways in routes only, and leaves out what is the default', () => {
  const addresses = [
    { index: 3, cidr: parseCidr('192.0.2.7/24'), scope: 0, flags: 128 },
    { index: 3, cidr: parseCidr('169.254.1.1/16'), scope: 253, flags: 128 },
  ];
  expect(networkOf({ addresses, routes: ROUTES })).toEqual({
    ips: [{ address: '192.0.2.7/24' }],
    routes: [
      { dst: '203.0.113.0/24', gw: '192.0.2.1', table: 100, priority: 7 },
      { dst: '0.0.0.0/0', scope: 253 },
    ],
  });
});

test('mergeNetworks() counts an address that both have once, with the gateway of IPAM', () => {
  const own = {
    ips: [{ address: '10.1.0.2/24' }, { address: '10.2.0.2/24' }],
    routes: [{ dst: '10.9.0.0/16' }],
  };
  const ipam = { ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }], routes: [{ dst: '0.0.0.0/0' }] };
  expect(mergeNetworks(own, ipam)).toEqual({
    ips: [{ address: '10.2.0.2/24' }, { address: '10.1.0.2/24', gateway: '10.1.0.1' }],
    routes: [{ dst: '10.9.0.0/16' }, { dst: '0.0.0.0/0' }],
  });
  expect(mergeNetworks(undefined, undefined)).toEqual({ ips: [], routes: [] });
});

test("rulesFor() takes plain source rules to the device's tables, never those of the kernel's tables", () => {
  const plain = {
    family: 4,
    priority: 500,
    to: undefined,
    iif: undefined,
    oif: undefined,
    mark: undefined,
    isL3mdev: false,
  } as const;
  const from = parseCidr('192.0.2.7/32');
  const rules: Rule[] = [
    { ...plain, from, table: 100 },
    { ...plain, from, table: 254 },
    { ...plain, from, table: 100, more: true },
    { ...plain, from, table: 101 },
    { ...plain, from, table: 100, mark: 1 },
    { ...plain, from: undefined, table: 100 },
  ];
  expect(rulesFor(ROUTES, rules)).toEqual([{ from: '192.0.2.7/32', table: 100, priority: 500 }]);
});

test('isMeant() compares a record with a selector by what that names', () => {
  const record = {
    name: 'up0',
    altNames: ['enp1s0'],
    mac: '02:00:00:00:00:01',
    parent: { bus: 'pci', name: '0000:01:00.0' },
  };
  const isIt = (selector: object) => isMeant(record as never, selector as never);
  expect(['up0', 'enp1s0', 'up1'].map(name => isIt({ by: 'name', name }))).toEqual([true, true, false]);
  expect([record.mac, 'up0'].map(mac => isIt({ by: 'mac', mac }))).toEqual([true, false]);
});
