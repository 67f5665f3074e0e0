import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import {
  addressesOf,
  Code,
  classlessRoutesOf,
  decodeDatagram,
  decodeMessage,
  encodeDatagram,
  encodeMessage,
  MessageType,
  nameOf,
  prefixOf,
  searchOf,
  staticRoutesOf,
  textOf,
} from '../../../../plugins/dhcp/codec.ts';
import { type Lease, leaseOf, resultOf } from '../../../../plugins/dhcp/lease.ts';
import { parseResult, renderResult } from '../../../../src/cni/result.ts';
import { renderIp } from '../../../../src/net/ip.ts';

const bytes = (...values: number[]) => Uint8Array.from(values);
const text = (value: string) => new TextEncoder().encode(value);
const routes = (found: ReturnType<typeof staticRoutesOf> | undefined) =>
  found?.map(
    ({ dst, gateway }) => `${renderIp(dst.ip)}/${dst.prefix} ${gateway ? renderIp(gateway) : 'on link'}`,
  );

describe('a subnet mask', () => {
  test.each([
    [bytes(255, 255, 255, 0), 24],
    [bytes(255, 255, 255, 255), 32],
    [bytes(128, 0, 0, 0), 1],
    [bytes(0, 0, 0, 0), undefined],
    [bytes(255, 0, 255, 0), undefined],
    [bytes(255, 255, 255), undefined],
  ])('%j has the length %p', (mask, length) => {
    expect(prefixOf(mask)).toBe(length);
  });
});

describe('classless routes', () => {
  // RFC 3442, "DHCP Client Behavior"
  test('have as many bytes as their prefix needs', () => {
    const value = [
      0, 10, 77, 0, 1, 8, 10, 10, 77, 0, 2, 25, 10, 27, 129, 0, 10, 77, 0, 3, 32, 192, 0, 2, 9, 0, 0, 0, 0,
    ];
    expect(routes(classlessRoutesOf(bytes(...value)))).toEqual([
      '0.0.0.0/0 10.77.0.1',
      '10.0.0.0/8 10.77.0.2',
      '10.27.129.0/25 10.77.0.3',
      '192.0.2.9/32 on link',
    ]);
  });

  test('that are cut or have a longer prefix than an address are no list', () => {
    expect(classlessRoutesOf(bytes(24, 10, 0, 0, 1, 2, 3))).toBeUndefined();
    expect(classlessRoutesOf(bytes(33, 10, 0, 0, 1, 1, 1, 1, 1, 1))).toBeUndefined();
  });

  test('to the pod itself, to multicast and through impossible gateways are left out', () => {
    const value = [8, 127, 10, 77, 0, 1, 4, 224, 10, 77, 0, 1, 8, 11, 127, 0, 0, 1, 8, 12, 10, 77, 0, 1];
    expect(routes(classlessRoutesOf(bytes(...value)))).toEqual(['12.0.0.0/8 10.77.0.1']);
  });

  test('are bounded in number', () => {
    const many = Array.from({ length: 500 }, (_, i) => [24, 10, i >> 8, i & 255, 10, 77, 0, 1]).flat();
    expect(classlessRoutesOf(bytes(...many))).toHaveLength(64);
  });
});

test('static routes have the prefix of their class, and no default route', () => {
  const value = [
    10, 1, 0, 0, 10, 77, 0, 2, 172, 16, 0, 0, 10, 77, 0, 3, 192, 168, 1, 0, 10, 77, 0, 4, 0, 0, 0, 0, 1, 1, 1,
    1,
  ];
  expect(routes(staticRoutesOf(bytes(...value)))).toEqual([
    '10.0.0.0/8 10.77.0.2',
    '172.16.0.0/16 10.77.0.3',
    '192.168.1.0/24 10.77.0.4',
  ]);
});

describe('names', () => {
  test.each([
    ['lan.example', 'lan.example'],
    ['lan.example.\0', 'lan.example'],
    ['a\nnameserver 6.6.6.6', undefined],
    ['-a.example', undefined],
    ['a..b', undefined],
    ['', undefined],
    [`${'a'.repeat(64)}.example`, undefined],
  ])('%j is %p', (given, name) => {
    expect(nameOf(text(given))).toBe(name as never);
  });

  // RFC 3397, section 2: a pointer to the end of the first name
  test('of a search list may be compressed', () => {
    const value = [
      3,
      ...text('eng'),
      5,
      ...text('apple'),
      3,
      ...text('com'),
      0,
      9,
      ...text('marketing'),
      0xc0,
      4,
    ];
    expect(searchOf(bytes(...value))).toEqual(['eng.apple.com', 'marketing.apple.com']);
  });

  test('of a search list with pointers that lead nowhere, or in a circle, end it', () => {
    expect(searchOf(bytes(1, 97, 0xc0, 0))).toEqual([]);
    expect(searchOf(bytes(0xc0, 0))).toEqual([]);
    expect(searchOf(bytes(1, 97, 0, 0xc0, 200))).toEqual(['a']);
    expect(searchOf(bytes(1, 97, 0, 9, 98))).toEqual(['a']);
  });
});

test('addresses that no host can have are left out', () => {
  const value = bytes(0, 0, 0, 0, 127, 0, 0, 1, 224, 0, 0, 1, 255, 255, 255, 255, 10, 0, 0, 1, 9, 9);
  expect(addressesOf(value).map(renderIp)).toEqual(['10.0.0.1']);
});

test('the text of a server is printable and cut', () => {
  expect(textOf(text('no\nway\x1b[31m'))).toBe('no?way?[31m');
  expect(textOf(new Uint8Array(900).fill(65))).toHaveLength(200);
});

describe('message', () => {
  const RUNS = { numRuns: Number(process.env.CATENA_PROPERTY_RUNS ?? 2_000) };
  const MAC = Uint8Array.of(2, 0, 0, 0, 0, 1);
  const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });

  /** A server's message: one of ours turned round, with options of any content. */
  const served = fc
    .tuple(
      bytes(4),
      fc.array(fc.tuple(fc.constantFrom(...Object.values(Code)), fc.uint8Array({ maxLength: 300 })), {
        maxLength: 12,
      }),
    )
    .map(([yiaddr, options]) => {
      const given = new Map(options.filter(([code]) => code !== Code.pad && code !== Code.end));
      given.set(Code.messageType, Uint8Array.of(MessageType.ack));
      const message = encodeMessage({
        ...{ xid: 7, secs: 0, broadcast: false, ciaddr: new Uint8Array(4), mac: MAC, options: given },
      });
      message[0] = 2;
      message.set(yiaddr, 16);
      return message;
    });

  describe('a message', () => {
    test('of any bytes is decoded or not, without an exception', () => {
      fc.assert(
        fc.property(fc.uint8Array({ maxLength: 700 }), noise => {
          decodeMessage(noise);
          decodeDatagram(noise, 67, 68);
        }),
        RUNS,
      );
    });

    test('that was damaged anywhere is decoded or not, without an exception', () => {
      const damage = fc.array(fc.tuple(fc.nat(600), fc.nat(255)), { maxLength: 8 });
      fc.assert(
        fc.property(served, damage, fc.nat(600), (message, changes, length) => {
          for (const [at, value] of changes) if (at < message.length) message[at] = value;
          const decoded = decodeMessage(message.subarray(0, length));
          if (decoded) leaseOf({ message: decoded, mac: MAC }, 0);
        }),
        RUNS,
      );
    });

    test('with options of any content grants a lease within bounds, or says why not', () => {
      fc.assert(
        fc.property(served, payload => {
          const message = decodeMessage(payload);
          if (message === undefined) throw new Error('not decoded');
          const lease = leaseOf({ message, mac: MAC }, 100);
          if (typeof lease === 'string') return;
          expectBounded(lease);
          // Every version can express what a server brought.
          for (const version of ['0.4.0', '1.0.0', '1.1.0'] as const)
            parseResult(renderResult(resultOf(lease, 5), version), version);
        }),
        RUNS,
      );
    });

    test('keeps long options and 16-bit seconds', () => {
      const long = new Uint8Array(600).fill(65);
      const given = new Map([
        [Code.messageType, Uint8Array.of(MessageType.offer)],
        [Code.domainSearch, long],
      ]);
      const message = encodeMessage({
        xid: 1,
        secs: 1e6,
        broadcast: true,
        ciaddr: MAC.subarray(0, 4),
        mac: MAC,
        options: given,
      });
      expect([...message.subarray(8, 12)]).toEqual([255, 255, 0x80, 0]);
      message[0] = 2;
      expect(decodeMessage(message)?.options.get(Code.domainSearch)).toEqual(long);
    });

    test('that is larger than a client accepts, or for another one, is none', () => {
      const made = (bytes: number) => {
        const message = new Uint8Array(bytes);
        message.set(
          encodeMessage({
            ...{ xid: 7, secs: 0, broadcast: false, ciaddr: new Uint8Array(4), mac: MAC },
            options: new Map([[Code.messageType, Uint8Array.of(MessageType.offer)]]),
          }),
        );
        message[0] = 2;
        return message;
      };
      expect(decodeMessage(made(1472))).toBeDefined();
      expect(decodeMessage(made(1473))).toBeUndefined();
      expect(decodeMessage(made(400), { xid: 7, mac: MAC })).toBeDefined();
      expect(decodeMessage(made(400), { xid: 8, mac: MAC })).toBeUndefined();
      expect(decodeMessage(made(400), { xid: 7, mac: MAC.slice(1) })).toBeUndefined();
    });

    test('may hold options in "file" and "sname", in that order', () => {
      const given = new Map([
        [Code.messageType, Uint8Array.of(MessageType.offer)],
        [Code.overload, Uint8Array.of(3)],
      ]);
      const message = encodeMessage({
        xid: 1,
        secs: 0,
        broadcast: false,
        ciaddr: new Uint8Array(4),
        mac: MAC,
        options: given,
      });
      message[0] = 2;
      message.set([Code.domainName, 2, 97, 98, Code.end], 108);
      message.set([Code.domainName, 1, 99, Code.end], 44);
      expect(decodeMessage(message)?.options.get(Code.domainName)).toEqual(Uint8Array.of(97, 98, 99));
    });
  });

  describe('a datagram', () => {
    test('comes back as it was sent, and its checksums are right', () => {
      fc.assert(
        fc.property(bytes(4), bytes(4), fc.uint8Array({ maxLength: 1200 }), (from, to, payload) => {
          const packet = encodeDatagram({ address: from, port: 67 }, { address: to, port: 68 }, payload);
          expect(decodeDatagram(packet, 67, 68)).toEqual(payload);
          expect(sumOf(packet.subarray(0, 20))).toBe(0xffff);
          const udp = packet.subarray(20);
          expect(
            sumOf(Uint8Array.from([...packet.subarray(12, 20), 0, 17, ...udp.subarray(4, 6), ...udp])),
          ).toBe(0xffff);
        }),
        { numRuns: 300 },
      );
    });

    test('that is a fragment, cut, or of another protocol is none', () => {
      const whole = () =>
        encodeDatagram({ address: MAC.slice(0, 4), port: 67 }, { address: MAC.slice(0, 4), port: 68 }, MAC);
      const changed = (at: number, value: number) => {
        const packet = whole();
        packet[at] = value;
        return decodeDatagram(packet, 67, 68);
      };
      expect(decodeDatagram(whole(), 67, 68)).toEqual(MAC);
      expect([
        changed(6, 0x20),
        changed(7, 1),
        changed(9, 6),
        changed(0, 0x65),
        changed(0, 0x44),
        changed(25, 200),
      ]).toEqual(Array(6).fill(undefined));
      expect(decodeDatagram(whole().subarray(0, 30), 67, 68)).toBeUndefined();
    });
  });

  function expectBounded(lease: Lease): void {
    expect(lease.routes.length).toBeLessThanOrEqual(65);
    expect(lease.nameservers.length).toBeLessThanOrEqual(8);
    expect(lease.search.length).toBeLessThanOrEqual(16);
    for (const name of [...lease.search, ...(lease.domain ? [lease.domain] : [])])
      expect(name).toMatch(/^[\w.-]{1,253}$/);
    for (const { dst } of lease.routes) expect(dst).not.toMatch(/^(127|22[4-9]|2[3-5]\d)\./);
    if (lease.mtu !== undefined) expect(lease.mtu).toBeGreaterThanOrEqual(576);
    const { duration, renewAfter = 0, rebindAfter = 0 } = lease;
    if (duration === undefined) return;
    expect(duration).toBeGreaterThanOrEqual(10);
    expect(renewAfter).toBeGreaterThan(0);
    expect(renewAfter).toBeLessThanOrEqual(rebindAfter);
    expect(rebindAfter).toBeLessThan(duration);
  }

  /** The sum over all 16-bit words, checksum included, is all ones. */
  function sumOf(bytes: Uint8Array): number {
    let sum = 0;
    for (let i = 0; i < bytes.length; i += 2) sum += ((bytes[i] ?? 0) << 8) + (bytes[i + 1] ?? 0);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
    return sum;
  }
});
