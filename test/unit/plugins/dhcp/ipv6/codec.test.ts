// Does any sequence of bytes end in a message or in nothing, within bounds?

import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import {
  Code,
  decodeAdvertisement,
  decodeMessage,
  decodeOptions,
  encodeAssociation,
  encodeMessage,
  encodeOptions,
  encodeSolicitation,
  MessageType,
  statusIn,
} from '../../../../../plugins/dhcp/ipv6/codec.ts';
import { grantIn } from '../../../../../plugins/dhcp/ipv6/lease.ts';
import { prefixFor, resultOf } from '../../../../../plugins/dhcp/ipv6/verbs.ts';
import { parseResult, renderResult } from '../../../../../src/cni/result.ts';
import { ipToBytes, parseCidr, parseIp } from '../../../../../src/net/ip.ts';

const RUNS = { numRuns: Number(process.env.CATENA_PROPERTY_RUNS ?? 2_000) };
const IAID = Uint8Array.of(1, 2, 3, 4);
const bytes = (maxLength: number) => fc.uint8Array({ maxLength });
const number = fc.integer({ min: 0, max: 0xffffffff });

const options = fc.array(fc.tuple(fc.constantFrom(...Object.values(Code)), bytes(80)), { maxLength: 10 });

/** An association with any times, and one address with any lifetimes. */
const association = fc
  .tuple(fc.uint8Array({ minLength: 16, maxLength: 16 }), number, number, number, number)
  .map(([ip, t1, t2, preferred, valid]) => {
    const value = encodeAssociation(IAID, [parseIp('2001:db8::1')]);
    const view = new DataView(value.buffer);
    value.set(ip, 16);
    for (const [at, one] of [
      [4, t1],
      [8, t2],
      [32, preferred],
      [36, valid],
    ] as const)
      view.setUint32(at, one);
    return value;
  });

function answerOf(payload: Uint8Array) {
  const message = decodeMessage(payload);
  return message && { message, server: Uint8Array.of(0, 1), from: 'fe80::1' };
}

describe('a message', () => {
  test('that was encoded is decoded to the same', () => {
    fc.assert(
      fc.property(options, fc.integer({ min: 0, max: 0xffffff }), (given, transaction) => {
        const message = { type: MessageType.reply, transaction, options: given };
        expect(decodeMessage(encodeMessage(message))).toEqual(message);
      }),
      RUNS,
    );
  });

  test('of any bytes is decoded or not, without an exception', () => {
    fc.assert(
      fc.property(bytes(400), noise => {
        const answer = answerOf(noise);
        if (answer) grantIn(answer, IAID, 0);
      }),
      RUNS,
    );
  });

  test('that is cut anywhere is not decoded, unless an option ends there', () => {
    fc.assert(
      fc.property(options, fc.nat(200), (given, length) => {
        const whole = encodeOptions(given);
        const decoded = decodeOptions(whole.subarray(0, length));
        if (decoded) expect(encodeOptions(decoded)).toEqual(whole.slice(0, length));
      }),
      RUNS,
    );
  });

  test('with options of any content grants a lease within bounds, or says why not', () => {
    fc.assert(
      fc.property(association, options, (own, more) => {
        const all = [[Code.iaNa, own] as const, ...more];
        const answer = answerOf(encodeMessage({ type: MessageType.reply, transaction: 7, options: all }));
        const { lease, refusal } = answer ? grantIn(answer, IAID, 0) : {};
        if (lease === undefined) return expect(refusal).toMatch(/^[\x20-\x7e]+$/);
        const { duration, preferred, renewAfter, rebindAfter, nameservers, search } = lease;
        expect(lease.address).not.toMatch(/^(fe[89ab][0-9a-f]|ff[0-9a-f]{2}):|^::1?$/);
        if (duration !== undefined) {
          expect(duration).toBeGreaterThanOrEqual(10);
          expect(preferred).toBeLessThanOrEqual(duration);
          expect(renewAfter).toBeLessThanOrEqual(rebindAfter ?? -1);
          expect(rebindAfter).toBeLessThan(duration);
        }
        const addresses = [parseCidr(`${lease.address}/128`)];
        const result = resultOf({
          addresses,
          routers: [],
          resolvers: { nameservers, search },
          priority: 1,
          version: '1.1.0',
        });
        parseResult(renderResult(result, '1.1.0'), '1.1.0');
      }),
      RUNS,
    );
  });

  test.each([
    [[0, 2], 2, 'it has no free address'],
    [[0, 3, 0x67, 0x6f, 0x6e, 0x65], 3, 'it does not know the lease ("gone")'],
    [[0, 4, 10], 4, 'the address does not belong on this network ("?")'],
    [[0, 9], 9, 'status 9'],
    [[0], 1, 'it failed without a reason'],
    [[0, 0], 0, ''],
  ] as const)('status %j is explained', (value, code, text) => {
    expect(statusIn([[Code.statusCode, Uint8Array.from(value)]])).toMatchObject({
      code,
      ...(code ? { text } : {}),
    });
  });
});

describe('advertisement', () => {
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
});
