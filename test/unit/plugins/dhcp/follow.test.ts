// Which MTU does an interface get by its lease, if another plugin has set one since ADD?
import { expect, test } from 'bun:test';
import { followMtu } from '../../../../plugins/dhcp/follow.ts';
import type { Lease } from '../../../../plugins/dhcp/lease.ts';
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
