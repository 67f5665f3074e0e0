import { describe, expect, test } from 'bun:test';
import { belongingsOf, freeTable, movedRoutes, needlessRoutes } from '../../../../plugins/vrf/plugin.ts';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';
import type { Route } from '../../../../src/netlink/rtnl/route.ts';

const OWN = 3;
const OTHER = 4;

function route(dst: string, more: Partial<Route> = {}): Route {
  return { dst: parseCidr(dst), oif: OWN, table: 254, protocol: 3, ...more };
}

describe('freeTable()', () => {
  test('takes the lowest that no VRF, rule or route mentions', () => {
    const use = { vrfs: [1, 4], rules: [{ table: 2 }], routes: [{ table: 3 }, { table: 254 }] };
    expect(freeTable(use)).toBe(5);
    expect(freeTable({ vrfs: [], rules: [], routes: [] })).toBe(1);
  });

  test('never takes one of the kernel', () => {
    const vrfs = Array.from({ length: 252 }, (_, i) => i + 1);
    expect(freeTable({ vrfs, rules: [], routes: [] })).toBe(256);
  });
});

describe('belongingsOf()', () => {
  test("takes the interface's own routes of every table but the local one, those with gateways last", () => {
    const routes = [
      route('0.0.0.0/0', { gateway: parseIp('10.1.0.1') }),
      route('10.1.0.0/24', { protocol: 2 }),
      route('10.2.0.0/16', { table: 900 }),
      route('10.1.0.2/32', { table: 255 }),
      route('10.3.0.0/16', { oif: OTHER }),
    ];
    const own = belongingsOf(OWN, 254, [], routes);
    expect(own.routes).toEqual([route('10.2.0.0/16', { table: 900 }), routes[0] as Route]);
    expect(own.onLink).toEqual([parseCidr('10.1.0.0/24')]);
    expect(movedRoutes(own, 254, 7).map(({ table }) => table)).toEqual([900, 7]);
  });

  test('takes its own next hops out of a combined route', () => {
    const ways = [
      { gateway: parseIp('fd00:1::1'), oif: OTHER },
      { gateway: parseIp('fd00:2::1'), oif: OWN },
    ];
    const [own] = belongingsOf(OWN, 254, [], [route('::/0', { oif: OTHER, ways })]).routes;
    expect(own).toEqual(route('::/0', { gateway: parseIp('fd00:2::1') }));
  });
});

describe('needlessRoutes()', () => {
  test('names the on-link routes that had been removed before, and no link-local one', () => {
    const before = belongingsOf(OWN, 254, [], [route('10.1.0.0/24', { protocol: 2 })]);
    const made = (dst: string) => route(dst, { table: 7, protocol: 2 });
    const present = [
      made('10.1.0.0/24'),
      made('10.2.0.0/24'),
      made('fe80::/64'),
      route('10.4.0.0/24', { table: 7 }),
    ];
    expect(needlessRoutes(OWN, 7, present, before)).toEqual([made('10.2.0.0/24')]);
  });
});
