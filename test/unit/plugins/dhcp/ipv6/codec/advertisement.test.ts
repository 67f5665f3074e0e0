// Does an advertisement say what is in its bytes, and nothing that a pod must not believe?

import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import {
  decodeAdvertisement,
  encodeSolicitation,
} from '../../../../../../plugins/dhcp/ipv6/codec/advertisement.ts';
import { prefixFor, resultOf } from '../../../../../../plugins/dhcp/ipv6/obtain.ts';
import { ipToBytes, parseCidr, parseIp } from '../../../../../../src/net/ip.ts';

const RUNS = { numRuns: Number(process.env.CATENA_PROPERTY_RUNS ?? 2_000) };

interface Given {
  readonly router?: string;
  readonly hopLimit?: number;
  readonly flags?: number;
  readonly lifetime?: number;
  readonly options?: readonly Uint8Array[];
}

function packetOf({ router = 'fe80::1', hopLimit = 255, flags = 0, lifetime = 1800, options = [] }: Given) {
  const body = [134, 0, 0, 0, 64, flags, lifetime >> 8, lifetime & 0xff, ...new Uint8Array(8)];
  const tail = options.flatMap(one => [...one]);
  const length = body.length + tail.length;
  const head = [0x60, 0, 0, 0, length >> 8, length & 0xff, 58, hopLimit];
  return Uint8Array.from([
    ...[...head, ...ipToBytes(parseIp(router)), ...ipToBytes(parseIp('ff02::1'))],
    ...[...body, ...tail],
  ]);
}

const prefixOption = (text: string, flags: number, valid = 3600) => {
  const { ip, prefix } = parseCidr(text);
  return Uint8Array.from([
    ...[3, 4, prefix, flags, 0, 0, valid >> 8, valid & 0xff, 0, 0, 0, 60, 0, 0, 0, 0],
    ...ipToBytes(ip),
  ]);
};
const RESOLVER = Uint8Array.from([25, 3, 0, 0, 0, 0, 0, 60, ...ipToBytes(parseIp('2001:db8::53'))]);
const SEARCH = Uint8Array.from([31, 2, 0, 0, 0, 0, 0, 60, 1, 97, 3, 108, 97, 110, 0, 0]);

describe('an advertisement', () => {
  test('names router, prefixes and resolvers', () => {
    const options = [
      prefixOption('2001:db8:1::/64', 0xc0),
      prefixOption('2001:db8:2::/64', 0x40),
      RESOLVER,
      SEARCH,
    ];
    const heard = decodeAdvertisement(packetOf({ flags: 0x80, options }));
    expect(heard).toEqual({
      router: parseIp('fe80::1'),
      isDefault: true,
      managed: true,
      prefixes: [
        { cidr: parseCidr('2001:db8:1::/64'), onLink: true, autonomous: true },
        { cidr: parseCidr('2001:db8:2::/64'), onLink: false, autonomous: true },
      ],
      nameservers: [parseIp('2001:db8::53')],
      search: ['a.lan'],
    });
    const routers = heard ? [heard] : [];
    expect(prefixFor(parseIp('2001:db8:1::9'), routers)).toBe(64);
    expect(prefixFor(parseIp('2001:db8:2::9'), routers)).toBe(128);
    const findings = {
      addresses: [parseCidr('2001:db8:1::9/64')],
      routers,
      priority: undefined,
      resolvers: { nameservers: [], search: [] },
    };
    expect(resultOf({ ...findings, version: '1.1.0' })).toEqual({
      ips: [{ address: '2001:db8:1::9/64', gateway: 'fe80::1' }],
      routes: [{ dst: '::/0', gw: 'fe80::1', priority: 1025 }],
    });
    // It could not say the metric, and the kernel's own route would be refused.
    expect(resultOf({ ...findings, version: '1.0.0' }).routes).toEqual([]);
  });

  test.each([
    ['of a router that routes no more', { lifetime: 0 }, { isDefault: false }],
    ['that withdraws a prefix', { options: [prefixOption('2001:db8::/64', 0xc0, 0)] }, { prefixes: [] }],
    ['of a link-local prefix', { options: [prefixOption('fe80::/64', 0xc0)] }, { prefixes: [] }],
    ['that crossed a router', { hopLimit: 254 }, undefined],
    ['from a global address', { router: '2001:db8::1' }, undefined],
    ['with an option of no length', { options: [new Uint8Array(8)] }, undefined],
  ] as const)('%s', (_, given, expected) => {
    const heard = decodeAdvertisement(packetOf(given));
    if (expected === undefined) expect(heard).toBeUndefined();
    else expect(heard).toMatchObject(expected as object);
  });

  test('of any bytes is decoded or not, without an exception', () => {
    const damage = fc.array(fc.tuple(fc.nat(140), fc.nat(255)), { maxLength: 6 });
    const options = [prefixOption('2001:db8::/64', 0xc0), RESOLVER, SEARCH];
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), damage, fc.nat(200), (noise, changes, length) => {
        decodeAdvertisement(noise);
        const packet = packetOf({ options });
        for (const [at, value] of changes) if (at < packet.length) packet[at] = value;
        decodeAdvertisement(packet.subarray(0, length));
      }),
      RUNS,
    );
  });
});

test('the question for advertisements has the bytes of RFC 4861, with its checksum', () => {
  expect(Buffer.from(encodeSolicitation()).toString('hex')).toBe(
    `6000000000083aff${'00'.repeat(16)}ff02${'00'.repeat(13)}0285007bb800000000`,
  );
  // From a host with an address, the router learns both of its addresses.
  const sender = { address: parseIp('fe80::1'), mac: Uint8Array.of(2, 0, 0, 0, 0, 1) };
  expect(Buffer.from(encodeSolicitation(sender)).toString('hex')).toBe(
    `6000000000103afffe80${'00'.repeat(13)}01ff02${'00'.repeat(13)}0285007a2c000000000101020000000001`,
  );
});
