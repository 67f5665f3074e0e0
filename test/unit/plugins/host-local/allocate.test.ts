import { describe, expect, test } from 'bun:test';
import { allocate, type Leases, SetExhausted, stretchesOf } from '../../../../plugins/host-local/allocate.ts';
import { parseRangeSets, type RangeSet } from '../../../../plugins/host-local/range.ts';
import { CniError } from '../../../../src/cni/errors.ts';
import { findIp, type Ip, offsetIp, parseIp, renderIp } from '../../../../src/net/ip.ts';

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
