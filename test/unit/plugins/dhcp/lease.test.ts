import { describe, expect, test } from 'bun:test';
import { Code } from '../../../../plugins/dhcp/codec.ts';
import { type Lease, leaseOf, mergeResults, resultOf } from '../../../../plugins/dhcp/lease.ts';
import { clientIdOf, dueAt, duidOf, iaidOf, stageOf } from '../../../../plugins/dhcp/upkeep.ts';

const LEASE: Lease = {
  address: '10.77.0.9/24',
  gateway: '10.77.0.1',
  routes: [{ dst: '0.0.0.0/0', gw: '10.77.0.1' }, { dst: '192.0.2.0/24' }],
  nameservers: [],
  search: [],
  server: '10.77.0.1',
  serverMac: '02:00:00:00:00:01',
  since: 1000,
  duration: 800,
  renewAfter: 400,
  rebindAfter: 700,
};
const { duration: _, renewAfter: __, rebindAfter: ___, ...ENDLESS } = LEASE;

describe('a lease', () => {
  test.each([
    [1000, 'bound', 1400],
    [1400, 'renewing', 1550],
    [1600, 'renewing', 1660],
    [1690, 'renewing', 1700],
    [1699.5, 'renewing', 1701.5],
    [1700, 'rebinding', 1760],
    [1780, 'rebinding', 1800],
    [1800, 'expired', 1860],
  ] as const)('at %d is %s, and next due at %d', (now, stage, due) => {
    expect(stageOf(LEASE, now)).toBe(stage);
    expect(dueAt(LEASE, now)).toBe(due);
  });

  test('without end is never due', () => {
    expect(stageOf(ENDLESS, 1e9)).toBe('bound');
    expect(dueAt(ENDLESS, 1e9)).toBeUndefined();
  });
});

describe('the result', () => {
  test('has a metric on every route, and the scope of those on the link', () => {
    expect(resultOf(LEASE, 50)).toEqual({
      ips: [{ address: '10.77.0.9/24', gateway: '10.77.0.1' }],
      routes: [
        { dst: '0.0.0.0/0', gw: '10.77.0.1', priority: 50 },
        { dst: '192.0.2.0/24', scope: 253, priority: 50 },
      ],
    });
  });

  test('has resolver settings only if the server named some', () => {
    const named = { ...LEASE, nameservers: ['10.77.0.53'], domain: 'lan.example', search: ['a.example'] };
    expect(resultOf(named, undefined).dns).toEqual({
      nameservers: ['10.77.0.53'],
      domain: 'lan.example',
      search: ['a.example'],
    });
    expect(resultOf(LEASE, undefined)).not.toHaveProperty('dns');
  });
});

test('results of two families become one, with the resolvers of both', () => {
  const four = resultOf({ ...LEASE, nameservers: ['10.77.0.53'], search: ['a.example'] }, undefined);
  const six = {
    ips: [{ address: 'fd77::9/64' }],
    routes: [],
    dns: { nameservers: ['fd77::53'], search: ['a.example', 'b.example'] },
  };
  expect(mergeResults([four, six])).toEqual({
    ips: [...(four.ips ?? []), ...six.ips],
    routes: four.routes ?? [],
    dns: { nameservers: ['10.77.0.53', 'fd77::53'], search: ['a.example', 'b.example'] },
  });
  expect(mergeResults([four])).toBe(four);
});

describe('what a server grants', () => {
  const u32 = (value: number) => Uint8Array.from([24, 16, 8, 0], shift => (value >>> shift) & 0xff);
  const granted = (more: readonly (readonly [number, number])[]) => {
    const options = new Map<number, Uint8Array>([
      [Code.subnetMask, Uint8Array.of(255, 255, 255, 0)],
      [Code.serverId, Uint8Array.of(10, 77, 0, 1)],
      ...more.map(([code, seconds]) => [code, u32(seconds)] as const),
    ]);
    const message = { options, yiaddr: Uint8Array.of(10, 77, 0, 9) };
    return leaseOf({ message, mac: new Uint8Array(6) } as unknown as Parameters<typeof leaseOf>[0], 0);
  };

  // RFC 2131, section 4.4.5: half of the time, and seven eighths of it.
  test.each([
    [[[Code.leaseTime, 800]], { duration: 800, renewAfter: 400, rebindAfter: 700 }],
    [
      [
        [Code.leaseTime, 800],
        [Code.renewalTime, 100],
        [Code.rebindingTime, 200],
      ],
      { duration: 800, renewAfter: 100, rebindAfter: 200 },
    ],
    [
      [
        [Code.leaseTime, 800],
        [Code.rebindingTime, 900],
      ],
      { duration: 800, renewAfter: 400, rebindAfter: 700 },
    ],
    [[[Code.leaseTime, 1]], { duration: 10, renewAfter: 5, rebindAfter: 8 }],
  ] as const)('with %j lasts %j', (options, times) => {
    expect(granted(options)).toMatchObject(times);
  });

  test('for ever has no times', () => {
    expect(granted([[Code.leaseTime, 0xffffffff]])).not.toHaveProperty('duration');
  });
});

test('attachments that differ in network, container or interface are different clients', () => {
  const one = { network: 'net', containerId: 'c', ifname: 'eth0' };
  const ids = [one, { ...one, network: 'other' }, { ...one, containerId: 'd' }, { ...one, ifname: 'eth1' }];
  expect(new Set(ids.map(id => clientIdOf(id).toHex())).size).toBe(4);
  // A server may tell clients by that part alone; the container is in the other one.
  expect(new Set(ids.map(id => iaidOf(id).toHex())).size).toBe(3);
  expect(duidOf(one, 'here').toHex()).not.toBe(duidOf(one, 'there').toHex());
});
