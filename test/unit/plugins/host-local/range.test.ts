import { describe, expect, test } from 'bun:test';
import {
  capacityOf,
  findRange,
  parseRange,
  parseRangeSets,
  renderRangeSet,
} from '../../../../plugins/host-local/range.ts';
import { parseIp, renderIp } from '../../../../src/net/ip.ts';

function texts(raw: Parameters<typeof parseRange>[0]): Record<string, string> {
  const { start, end, gateway } = parseRange(raw);
  return { start: renderIp(start), end: renderIp(end), ...(gateway && { gateway: renderIp(gateway) }) };
}

describe('parseRange()', () => {
  test.each([
    ['192.0.2.0/31', '192.0.2.0', '192.0.2.1'],
    ['192.0.2.5/32', '192.0.2.5', '192.0.2.5'],
    ['2001:db8::/127', '2001:db8::', '2001:db8::1'],
    ['2001:db8::5/128', '2001:db8::5', '2001:db8::5'],
  ])('%s has addresses for hosts alone (RFC 3021, RFC 6164)', (subnet, start, end) => {
    expect(texts({ subnet })).toEqual({ start, end });
    expect(texts({ subnet, gateway: '198.51.100.1' })).toEqual({ start, end, gateway: '198.51.100.1' });
  });

  test('fills in gateway, start and end', () => {
    expect(texts({ subnet: '192.0.2.0/24' })).toEqual({
      start: '192.0.2.1',
      end: '192.0.2.254',
      gateway: '192.0.2.1',
    });
    expect(texts({ subnet: '192.0.2.0/25' })).toEqual({
      start: '192.0.2.1',
      end: '192.0.2.126',
      gateway: '192.0.2.1',
    });
    expect(texts({ subnet: '2001:db8:1::/64' })).toEqual({
      start: '2001:db8:1::1',
      end: '2001:db8:1:0:ffff:ffff:ffff:ffff',
      gateway: '2001:db8:1::1',
    });
  });

  test('keeps explicit values and treats empty ones as absent', () => {
    const raw = {
      subnet: '192.0.2.0/24',
      rangeStart: '192.0.2.40',
      rangeEnd: '192.0.2.50',
      gateway: '192.0.2.254',
    };
    expect(texts(raw)).toEqual({ start: '192.0.2.40', end: '192.0.2.50', gateway: '192.0.2.254' });
    expect(texts({ subnet: '192.0.2.0/29', rangeStart: '', rangeEnd: '', gateway: '' }).end).toBe(
      '192.0.2.6',
    );
  });

  const bad: [string, Parameters<typeof parseRange>[0], string][] = [
    ['a subnet that is none', { subnet: '192.0.2.0' }, '"subnet" must be address/prefix'],
    ['host bits', { subnet: '192.0.2.12/24' }, 'its network is 192.0.2.0/24'],
    ['host bits across octets', { subnet: '192.0.2.12/23' }, 'its network is 192.0.2.0/23'],
    ['IPv6 host bits', { subnet: '2001:db8:1::24:19/64' }, 'its network is 2001:db8:1::/64'],
    [
      'a start outside',
      { subnet: '192.0.2.0/24', rangeStart: '192.0.3.1' },
      '"rangeStart" 192.0.3.1 is not in network',
    ],
    [
      'an end outside',
      { subnet: '192.0.2.0/24', rangeEnd: '192.0.4.1' },
      '"rangeEnd" 192.0.4.1 is not in network',
    ],
    [
      'a start after the end',
      { subnet: '192.0.2.0/24', rangeStart: '192.0.2.50', rangeEnd: '192.0.2.40' },
      'comes after',
    ],
    [
      'a gateway that is none',
      { subnet: '192.0.2.0/24', gateway: 'x' },
      '"gateway" must be an IP address, found "x"',
    ],
  ];
  for (const [title, raw, message] of bad) {
    test(`refuses ${title}`, () => expect(() => parseRange(raw)).toThrow(message));
  }
});

describe('parseRangeSets()', () => {
  test('accepts several ranges of one subnet', () => {
    const [set] = parseRangeSets([
      [
        { subnet: '10.0.0.0/24', rangeStart: '10.0.0.10', rangeEnd: '10.0.0.20' },
        { subnet: '10.0.0.0/24', rangeStart: '10.0.0.30', rangeEnd: '10.0.0.40' },
      ],
    ]);
    expect(set && renderRangeSet(set)).toBe('10.0.0.10-10.0.0.20,10.0.0.30-10.0.0.40');
  });

  test('names the set that is wrong', () => {
    const good = [{ subnet: '10.0.0.0/24' }];
    expect(() => parseRangeSets([good, []])).toThrow('range set 1: it has no ranges');
    expect(() => parseRangeSets([[...good, { subnet: 'fd00::/64' }]])).toThrow(
      'range set 0: it mixes IPv4 and IPv6',
    );
    expect(() => parseRangeSets([[...good, { subnet: '10.0.0.0/25' }]])).toThrow(
      'range set 0: "subnet" 10.0.0.0/25 (10.0.0.1-10.0.0.126) overlaps 10.0.0.1-10.0.0.254',
    );
    expect(() => parseRangeSets([good, [{ subnet: '10.0.0.128/25' }]])).toThrow(
      'range sets 0 and 1: "subnet" 10.0.0.128/25 (',
    );
  });
});

describe('capacityOf()', () => {
  test('leaves out gateways that lie in a range', () => {
    const [inside, outside] = parseRangeSets([
      [{ subnet: '10.0.0.0/29' }],
      [{ subnet: '10.0.1.0/29', rangeStart: '10.0.1.2' }],
    ]);
    expect(inside && capacityOf(inside)).toBe(5n);
    expect(outside && capacityOf(outside)).toBe(5n);
  });
});

describe('findRange()', () => {
  test('respects both ends', () => {
    const [set] = parseRangeSets([
      [{ subnet: '10.0.0.0/24', rangeStart: '10.0.0.10', rangeEnd: '10.0.0.20' }],
    ]);
    const found = (text: string) => set && findRange(set, parseIp(text)) !== undefined;
    expect(['10.0.0.9', '10.0.0.10', '10.0.0.20', '10.0.0.21', 'fd00::10'].map(found)).toEqual([
      false,
      true,
      true,
      false,
      false,
    ]);
  });
});

describe('parseRangeSets() with parts of a subnet', () => {
  const render = (range: Parameters<typeof parseRange>[0]) =>
    parseRangeSets([[range]])
      .map(renderRangeSet)
      .join(' ');
  const subnet = '192.0.2.0/24';

  test('leaves out addresses, subnets and stretches, whatever their order', () => {
    const exclude = ['192.0.2.128/25', '192.0.2.10', '192.0.2.9 - 192.0.2.12', '192.0.2.13'];
    expect(render({ subnet, exclude })).toBe('192.0.2.1-192.0.2.8,192.0.2.14-192.0.2.127');
  });

  test('hands out listed addresses only, without excluded ones', () => {
    const addresses = ['192.0.2.9', '192.0.2.5', '192.0.2.6', '192.0.2.40-192.0.2.44'];
    expect(render({ subnet, addresses })).toBe(
      '192.0.2.5-192.0.2.6,192.0.2.9-192.0.2.9,192.0.2.40-192.0.2.44',
    );
    expect(render({ subnet, addresses, exclude: ['192.0.2.9', '192.0.2.42'] })).toBe(
      '192.0.2.5-192.0.2.6,192.0.2.40-192.0.2.41,192.0.2.43-192.0.2.44',
    );
    expect(render({ subnet: '2001:db8::/64', addresses: ['2001:db8::5'] })).toBe('2001:db8::5-2001:db8::5');
  });

  test('counts what is left', () => {
    const [set] = parseRangeSets([[{ subnet, exclude: ['192.0.2.1-192.0.2.10'] }]]);
    expect(set && capacityOf(set)).toBe(244n);
  });

  const bad: [Parameters<typeof parseRange>[0], string][] = [
    [
      { subnet, exclude: ['198.51.100.1'] },
      '"exclude" holds "198.51.100.1", which is not in network 192.0.2.0/24',
    ],
    [
      { subnet, exclude: ['192.0.2.9-192.0.2.1'] },
      'expected an address, a subnet, or two addresses joined by "-"',
    ],
    [{ subnet, addresses: ['some'] }, '"addresses" holds "some"'],
    [{ subnet, addresses: [] }, '"addresses" is empty'],
    [{ subnet, addresses: ['192.0.2.5'], rangeStart: '192.0.2.4' }, 'exclude each other'],
    [{ subnet, exclude: [subnet] }, '"exclude" leaves no address of it'],
  ];
  test.each(bad)('refuses %j', (raw, message) => {
    expect(() => parseRangeSets([[raw]])).toThrow(message);
  });
});
