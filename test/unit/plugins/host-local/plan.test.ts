import { describe, expect, test } from 'bun:test';
import { HostLocalConf } from '../../../../plugins/host-local/config.ts';
import {
  allocate,
  capacityOf,
  findRange,
  type Leases,
  parseRange,
  parseRangeSets,
  planAllocation,
  planResult,
  type RangeSet,
  renderRangeSet,
  SetExhausted,
  stretchesOf,
} from '../../../../plugins/host-local/plan.ts';
import { CniError } from '../../../../src/cni/errors.ts';
import { decode } from '../../../../src/cni/json.ts';
import type { SpecVersion } from '../../../../src/cni/result.ts';
import { findUnleased } from '../../../../src/ipam/lease-store.ts';
import { findIp, type Ip, offsetIp, parseIp, renderIp } from '../../../../src/net/ip.ts';

function plan(conf: object, args: [string, string][] = [], version: SpecVersion = '1.1.0') {
  return planAllocation(decode(HostLocalConf, { type: 'host-local', ...conf }, 'test'), args, version);
}

function failure(work: () => unknown): CniError {
  try {
    work();
  } catch (thrown) {
    return thrown as CniError;
  }
  throw new Error('no failure');
}

const ranges = [[{ subnet: '10.1.0.0/29' }]];

describe('planAllocation()', () => {
  test('orders sets: ipRanges, the single range, ranges', () => {
    const { sets } = plan({
      ipam: { subnet: '10.2.0.0/29', rangeEnd: '10.2.0.4', ranges },
      RuntimeConfig: { ipRanges: [[{ Subnet: '10.3.0.0/29' }]] },
    });
    expect(sets.map(renderRangeSet)).toEqual(['10.3.0.1-10.3.0.6', '10.2.0.1-10.2.0.4', '10.1.0.1-10.1.0.6']);
  });

  test('gathers requested addresses from all sources, without prefixes and duplicates', () => {
    const { requested } = plan(
      {
        ipam: { ranges },
        args: { cni: { ips: ['10.1.0.3/29', '10.1.0.2'] } },
        runtimeConfig: { ips: ['fd00::1/64'] },
      },
      [['IP', '10.1.0.2/24']],
    );
    expect(requested.map(renderIp)).toEqual(['10.1.0.2', '10.1.0.3', 'fd00::1']);
  });

  test('refuses invalid addresses, with the code of their source', () => {
    expect(failure(() => plan({ ipam: { ranges } }, [['IP', '10.1.0.2,10.1.0.3']])).code).toBe(4);
    expect(failure(() => plan({ ipam: { ranges }, args: { cni: { ips: [''] } } })).code).toBe(7);
    expect(failure(() => plan({ ipam: { ranges } }, [['GATEWAY', '10.1.0.1']])).message).toContain(
      'unknown args',
    );
  });

  test('refuses a configuration without ranges, with bad ones, or with too many for its version', () => {
    expect(failure(() => plan({ ipam: {} }))).toMatchObject({
      code: 7,
      message: expect.stringContaining('no ranges'),
    });
    expect(failure(() => plan({ ipam: { ranges: [[{ subnet: '10.1.0.9/29' }]] } })).code).toBe(7);
    const two = { ipam: { ranges: [...ranges, [{ subnet: '10.9.0.0/29' }]] } };
    expect(failure(() => plan(two, [], '0.2.0'))).toMatchObject({
      code: 7,
      message: expect.stringContaining('0.3.0'),
    });
    expect(plan(two, [], '0.3.0').sets).toHaveLength(2);
  });

  test('passes routes on, with addresses in canonical form', () => {
    const routes = [
      { dst: '10.7.0.1/16', gw: '::ffff:10.1.0.1', priority: 5 },
      { dst: 'FD00:0::/64', gw: '' },
    ];
    expect(plan({ ipam: { ranges, routes } }).routes).toEqual([
      { dst: '10.7.0.1/16', gw: '10.1.0.1', priority: 5 },
      { dst: 'fd00::/64' },
    ]);
    expect(failure(() => plan({ ipam: { ranges, routes: [{ dst: 'default' }] } })).message).toContain(
      'routes[0].dst',
    );
  });
});

describe('planResult()', () => {
  test('reports addresses with the prefix and gateway of their range', () => {
    const planned = plan({ ipam: { ranges, routes: [{ dst: '0.0.0.0/0' }] } });
    const [set] = planned.sets;
    if (set === undefined) throw new Error('no set');
    const result = planResult([{ ip: parseIp('10.1.0.4'), range: set[0], setIndex: 0 }], planned, {
      domain: 'a',
    });
    expect(result).toEqual({
      ips: [{ address: '10.1.0.4/29', gateway: '10.1.0.1' }],
      routes: [{ dst: '0.0.0.0/0' }],
      dns: { domain: 'a' },
    });
  });
});

describe('findUnleased()', () => {
  const { sets } = plan({ ipam: { ranges } });
  const find = (addresses: string[], leased: string[]) =>
    findUnleased(
      addresses.map(address => ({ address })),
      leased,
      address => sets.some(set => findRange(set, parseIp(address)) !== undefined),
    );

  test('ignores addresses that other plugins added', () => {
    expect(find(['10.1.0.2/29', '192.0.2.1/24'], ['10.1.0.2'])).toEqual([]);
    expect(find([], ['10.1.0.2'])).toEqual([]);
  });
  test('names addresses of our ranges that are not leased, and all when none is', () => {
    expect(find(['10.1.0.2/29', '10.1.0.3/29'], ['10.1.0.2'])).toEqual(['10.1.0.3']);
    expect(find(['192.0.2.1/24'], ['10.1.0.2'])).toEqual(['192.0.2.1']);
  });
});

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

  test.each([
    ['192.0.2.0/29', '192.0.2.0', '192.0.2.7', { start: '192.0.2.1', end: '192.0.2.6' }],
    ['2001:db8::/125', '2001:db8::', '2001:db8::7', { start: '2001:db8::1', end: '2001:db8::7' }],
  ])('%s from %s to %s is without addresses that no container can have', (subnet, from, to, ends) => {
    expect(texts({ subnet, rangeStart: from, rangeEnd: to })).toMatchObject(ends);
    expect(() => texts({ subnet, rangeStart: from, rangeEnd: from })).toThrow('no address is between');
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

describe('parseRangeSets() with the gateway of one set in another', () => {
  test('hands it out to none, since a bridge has it', () => {
    const sets = parseRangeSets([
      [{ subnet: '10.4.0.0/29', gateway: '10.5.0.3' }],
      [{ subnet: '10.5.0.0/29' }],
      [{ subnet: '10.6.0.0/30', gateway: '10.5.0.5' }],
    ]);
    expect(sets.map(renderRangeSet)).toEqual([
      '10.4.0.1-10.4.0.6',
      '10.5.0.1-10.5.0.2,10.5.0.4-10.5.0.4,10.5.0.6-10.5.0.6',
      '10.6.0.1-10.6.0.2',
    ]);
    expect(sets[1] && capacityOf(sets[1])).toBe(3n);
  });

  test('refuses what leaves no address', () => {
    const sets = [[{ subnet: '10.4.0.0/29', gateway: '10.5.0.7' }], [{ subnet: '10.5.0.7/32' }]];
    expect(() => parseRangeSets(sets)).toThrow('range set 1: gateways of other range sets leave no address');
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

  test('of listed subnets, neither the address of the subnet nor its broadcast address, unless it is named', () => {
    expect(render({ subnet, addresses: ['192.0.2.0/30', '192.0.2.252/30'] })).toBe(
      '192.0.2.1-192.0.2.3,192.0.2.252-192.0.2.254',
    );
    expect(render({ subnet, addresses: ['192.0.2.0', '192.0.2.8/31'] })).toBe(
      '192.0.2.0-192.0.2.0,192.0.2.8-192.0.2.9',
    );
    expect(render({ subnet: '2001:db8::/64', addresses: ['2001:db8::/127'] })).toBe(
      '2001:db8::1-2001:db8::1',
    );
    expect(render({ subnet: '192.0.2.0/31', addresses: ['192.0.2.0/31'] })).toBe('192.0.2.0-192.0.2.1');
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

function setOf(...subnets: string[]): RangeSet {
  const [set] = parseRangeSets([subnets.map(subnet => ({ subnet }))]);
  if (set === undefined) throw new Error('no set');
  return set;
}

function leases(taken: string[], last?: string): Leases {
  const isTaken = (ip: Ip) => taken.includes(renderIp(ip));
  return {
    isTaken,
    findOwner: address => (isTaken(parseIp(address)) ? { containerId: 'web', ifname: 'eth0' } : undefined),
    findFree(from, to) {
      for (let ip = from; ip.value <= to.value; ip = offsetIp(ip, 1n)) if (!isTaken(ip)) return ip;
      return undefined;
    },
    findLastReserved: () => (last === undefined ? undefined : findIp(last)),
  };
}

function attempt(plan: Parameters<typeof allocate>[0], known: Leases): string[] | CniError | SetExhausted {
  try {
    return allocate(plan, known).map(({ ip }) => renderIp(ip));
  } catch (thrown) {
    if (thrown instanceof CniError || thrown instanceof SetExhausted) return thrown;
    throw thrown;
  }
}

describe('stretchesOf()', () => {
  const order = (set: RangeSet, last?: string) =>
    stretchesOf(set, last === undefined ? undefined : parseIp(last)).map(([from, to]) =>
      [from, to].map(ip => renderIp(ip).replace(/^(10\.0|192\.168)\./, '')).join('-'),
    );

  test('starts at the beginning without a pointer, or when it lies outside', () => {
    expect(order(setOf('192.168.1.0/29'))).toEqual(['1.1-1.6']);
    expect(order(setOf('192.168.1.0/29'), '192.168.5.3')).toEqual(['1.1-1.6']);
  });
  test('goes around from the middle and tries the last one last', () => {
    expect(order(setOf('192.168.1.0/29'), '192.168.1.3')).toEqual(['1.4-1.6', '1.1-1.3']);
  });
  test('goes around from the end', () => {
    expect(order(setOf('192.168.1.0/29'), '192.168.1.6')).toEqual(['1.1-1.6']);
  });
  test('walks all ranges of the set and around', () => {
    const set = setOf('10.0.0.0/30', '10.0.1.0/29', '10.0.2.0/30');
    expect(order(set, '10.0.1.5')).toEqual(['1.6-1.6', '2.1-2.2', '0.1-0.2', '1.1-1.5']);
  });
});

describe('allocate()', () => {
  const one = { sets: [setOf('10.0.0.0/29')], requested: [] };
  const table: [
    title: string,
    subnets: string[],
    taken: string[],
    last: string | undefined,
    expected: string,
  ][] = [
    ['first of a fresh network', ['10.0.0.0/29'], [], undefined, '10.0.0.2'],
    ['next after the last', ['10.0.0.0/29'], [], '10.0.0.2', '10.0.0.3'],
    ['skips what is taken', ['10.0.0.0/29'], ['10.0.0.2'], undefined, '10.0.0.3'],
    ['skips what is taken after the last', ['10.0.0.0/29'], ['10.0.0.5'], '10.0.0.4', '10.0.0.6'],
    ['wraps', ['10.0.0.0/29'], ['10.0.0.5'], '10.0.0.6', '10.0.0.2'],
    ['a pointer out of range starts over', ['10.0.0.0/29'], [], '10.0.0.128', '10.0.0.2'],
    ['full except the last', ['10.0.0.0/30'], [], '10.0.0.2', '10.0.0.2'],
    ['advances to the second subnet', ['10.0.0.0/30', '10.0.1.0/30'], ['10.0.0.2'], '10.0.0.2', '10.0.1.2'],
    ['rolls to the first subnet', ['10.0.0.0/30', '10.0.1.0/30'], ['10.0.1.2'], '10.0.1.2', '10.0.0.2'],
  ];
  for (const [title, subnets, taken, last, expected] of table) {
    test(title, () => {
      expect(attempt({ sets: [setOf(...subnets)], requested: [] }, leases(taken, last))).toEqual([expected]);
    });
  }

  test('names the set if no address is free', () => {
    const other = setOf('10.9.0.0/24');
    const error = attempt(
      { sets: [other, ...one.sets], requested: [] },
      leases(['2', '3', '4', '5', '6'].map(n => `10.0.0.${n}`)),
    );
    expect(error).toBeInstanceOf(SetExhausted);
    expect(error).toMatchObject({ set: one.sets[0], setIndex: 1 });
  });

  test('skips every gateway of the set', () => {
    const [set] = parseRangeSets([
      [
        { subnet: '10.0.0.0/29', gateway: '10.0.0.3' },
        { subnet: '10.0.0.8/29', gateway: '10.0.0.2' },
      ],
    ]);
    if (set === undefined) throw new Error('no set');
    expect(attempt({ sets: [set], requested: [] }, leases([], '10.0.0.1'))).toEqual(['10.0.0.4']);
  });

  test('allocates one address from each set', () => {
    const sets = [setOf('10.0.0.0/29'), setOf('fd00::/64'), setOf('10.9.0.0/24')];
    expect(attempt({ sets, requested: [] }, leases([]))).toEqual(['10.0.0.2', 'fd00::2', '10.9.0.2']);
  });

  test('allocates requested addresses, each from its own set, in the order of the request', () => {
    const sets = [setOf('10.0.0.0/24'), setOf('fd00::/64')];
    const requested = [parseIp('fd00::77'), parseIp('10.0.0.88')];
    expect(attempt({ sets, requested }, leases([]))).toEqual(['10.0.0.88', 'fd00::77']);
  });

  test('refuses requested addresses that are taken, a gateway, outside or second in a set', () => {
    const ask = (...texts: string[]) =>
      attempt({ ...one, requested: texts.map(parseIp) }, leases(['10.0.0.4'])) as CniError;
    expect(ask('10.0.0.4')).toMatchObject({
      code: 101,
      message: `Cannot allocate from range set 0: requested IP address 10.0.0.4 is not available: it is in use by container "web", interface "eth0"`,
    });
    expect(ask('10.0.0.1')).toMatchObject({
      code: 101,
      message: expect.stringContaining('it is the gateway'),
    });
    expect(ask('10.0.0.7')).toMatchObject({
      code: 102,
      message: expect.stringContaining('addresses 10.0.0.7'),
    });
    expect(ask('10.0.0.2', '10.0.0.3')).toMatchObject({
      code: 102,
      message: expect.stringContaining('10.0.0.3'),
    });
  });
});
