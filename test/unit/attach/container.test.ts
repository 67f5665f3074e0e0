import { describe, expect, test } from 'bun:test';
import type { PlannedRoute } from '../../../src/attach/addressing.ts';
import { checkRoutes, mergeWays } from '../../../src/attach/container.ts';
import { parseCidr, parseIp, renderIp } from '../../../src/net/ip.ts';
import type { Link } from '../../../src/netlink/rtnl/link.ts';
import { type Route, routeMessage } from '../../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';

const route = (dst: string, gateway?: string, more: Partial<PlannedRoute> = {}): PlannedRoute => ({
  dst: parseCidr(dst),
  gateway: gateway === undefined ? undefined : parseIp(gateway),
  ...more,
});

function words({ dst, gateway, ways }: Route): string {
  const via = [gateway, ...(ways ?? []).map(way => way.gateway)].flatMap(ip => (ip ? renderIp(ip) : []));
  return [`${renderIp(dst.ip)}/${dst.prefix}`, ...via].join(' ');
}

describe('mergeWays()', () => {
  test('makes one route of several gateways for one destination', () => {
    const routes = [
      route('0.0.0.0/0', '10.0.0.1'),
      route('10.9.0.0/16', '10.0.0.1'),
      route('0.0.0.0/0', '10.0.0.2'),
      route('::/0', 'fd00::1'),
      route('10.9.0.7/16', '10.0.0.1'),
    ];
    const merged = mergeWays(routes, 7);
    expect(merged.map(words)).toEqual([
      '0.0.0.0/0 10.0.0.1 10.0.0.2',
      '10.9.0.0/16 10.0.0.1',
      '::/0 fd00::1',
    ]);
    expect(merged[0]?.ways?.map(({ oif }) => oif)).toEqual([7, 7]);
  });

  test('keeps routes apart that differ in table or priority, or need no gateway', () => {
    const routes = [
      route('10.9.0.0/16', '10.0.0.1'),
      route('10.9.0.0/16', '10.0.0.2', { priority: 5 }),
      route('10.9.0.0/16', '10.0.0.3', { table: 100 }),
      route('10.8.0.0/16'),
      route('10.8.0.0/16', '10.0.0.1'),
    ];
    expect(mergeWays(routes, 7)).toHaveLength(5);
    expect(
      mergeWays([route('10.9.0.0/16', '10.0.0.1'), route('10.9.0.0/16', '10.0.0.2', { table: 254 })], 7),
    ).toHaveLength(1);
  });
});

describe('checkRoutes()', () => {
  const link = { index: 3, name: 'eth0' } as Link;
  /** A kernel that has one route, out by the interface. */
  const kernel = (attrs: object, header: object = {}) =>
    ({
      dump: () => [
        routeMessage.encode(
          { family: 2, dstLength: 16, table: 254, type: 1, ...header },
          { dst: parseIp('10.9.0.0'), oif: 3, gateway: parseIp('10.0.0.1'), ...attrs },
        ),
      ],
    }) as unknown as NetlinkSocket;

  test('accepts any value that the plan leaves open', () => {
    const found = kernel({ priority: 5, prefsrc: parseIp('10.0.0.9'), metrics: { mtu: 1400 } }, { scope: 0 });
    checkRoutes(found, link, [route('10.9.0.0/16'), route('10.9.3.0/16', '10.0.0.1')]);
  });

  test('accepts a route whose metrics the kernel has cut', () => {
    const found = kernel({ metrics: { mtu: 65_520, advmss: 65_495 } });
    checkRoutes(found, link, [{ ...route('10.9.0.0/16', '10.0.0.1'), mtu: 65_535, advmss: 65_535 }]);
  });

  const missing: [words: string, more: Partial<PlannedRoute>][] = [
    ['10.9.0.0/16 via 10.0.0.2', { gateway: parseIp('10.0.0.2') }],
    ['10.9.0.0/16 src 10.0.0.9', { gateway: undefined, source: parseIp('10.0.0.9') }],
    ['10.9.0.0/16 via 10.0.0.1 metric 7', { priority: 7 }],
    ['10.9.0.0/16 via 10.0.0.1 table 100', { table: 100 }],
    ['10.9.0.0/16 via 10.0.0.1 scope 253', { scope: 253 }],
    ['10.9.0.0/16 via 10.0.0.1 mtu 1300', { mtu: 1300 }],
  ];
  for (const [words, more] of missing) {
    test(`reports a missing ${words}`, () => {
      const wanted = { ...route('10.9.0.0/16', '10.0.0.1'), ...more };
      expect(() => checkRoutes(kernel({}), link, [wanted])).toThrow(`routes of "eth0": expected "${words}"`);
    });
  }

  test('finds each next hop of a multipath route', () => {
    const multipath = ['10.0.0.1', '10.0.0.2'].map(gateway => ({ gateway: parseIp(gateway), oif: 3 }));
    const found = kernel({ multipath, gateway: undefined, oif: undefined });
    checkRoutes(found, link, [route('10.9.0.0/16', '10.0.0.2'), route('10.9.0.0/16', '10.0.0.1')]);
    expect(() => checkRoutes(found, link, [route('10.9.0.0/16', '10.0.0.3')])).toThrow();
  });
});
