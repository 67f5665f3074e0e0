// Which MTU does an interface get by its lease, if another plugin has set one since ADD, and are the routes of two leases the same?
import { expect, test } from 'bun:test';
import { followMtu } from '../../../../plugins/dhcp/follow.ts';
import { IPV4_LEASES, type Lease } from '../../../../plugins/dhcp/lease.ts';
import type { OpenInterface } from '../../../../plugins/dhcp/upkeep.ts';
import { createLog } from '../../../../src/log.ts';

/** @returns whether the MTU was changed */
function follow(present: number, named: number | undefined): boolean {
  const link = { index: 7, name: 'eth0', mtu: present };
  const place = { link, socket: { request() {}, dump: () => [] } } as unknown as OpenInterface;
  const lease = { address: '10.77.0.5/24', mtu: named } as Lease;
  const limits = { own: 1500, needsIpv6: false, log: createLog('error') };
  return followMtu(place, lease, limits, lease);
}

test.each([
  { present: 9000, named: undefined, isChanged: false },
  { present: 9000, named: 9000, isChanged: false },
  { present: 9000, named: 1400, isChanged: true },
  { present: 1300, named: undefined, isChanged: false },
  { present: 1500, named: 1400, isChanged: true },
  { present: 1500, named: 9000, isChanged: false },
])(
  'an MTU of 1500 that is $present now, if the server names $named, is changed: $isChanged',
  ({ present, named, isChanged }) => {
    expect(follow(present, named)).toBe(isChanged);
  },
);

test('the routes of a lease are the same in another order', () => {
  const routes = [
    { dst: '192.0.2.0/24', gw: '10.77.0.9' },
    { dst: '0.0.0.0/0', gw: '10.77.0.1' },
  ];
  const of = (...order: typeof routes) =>
    IPV4_LEASES.routesOf({ lease: { routes: order } } as unknown as Parameters<
      typeof IPV4_LEASES.routesOf
    >[0]);
  expect(of(...routes)).toEqual(of(...routes.toReversed()));
});
