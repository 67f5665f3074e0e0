// Does a tree have the classes and filters that the lists ask for, with sensible quanta, and are differences named?
import { describe, expect, test } from 'bun:test';
import {
  type FoundTree,
  findTreeDifferences,
  isReferenceTree,
  planTree,
  type Tree,
} from '../../../../plugins/bandwidth/tree.ts';
import { parseCidr } from '../../../../src/net/ip.ts';
import { type Filter, matchSubnet, protocolOf } from '../../../../src/netlink/rtnl/filter.ts';
import { tcHandle } from '../../../../src/netlink/rtnl/qdisc.ts';

const TBF = { rateBytes: 1_250_000, bufferTicks: 781_250, limitBytes: 93_750 };
const SUBNETS = ['10.0.0.0/8', 'fd00::/8'].map(parseCidr);

function plan({ are = 'unshaped' as 'shaped' | 'unshaped', tbf = TBF, mtu = 1500 } = {}): Tree {
  return planTree(tbf, { are, subnets: SUBNETS }, 'source', mtu);
}

/** What the kernel shows of a tree. */
function shown(tree: Tree): FoundTree {
  const { defaultMinor, shaped, unshaped, limitBytes } = tree;
  const filters = tree.filters.map(({ preference, subnet, end, classid }): Filter => {
    const selector = matchSubnet(subnet, end);
    const rest = { index: 3, kind: 'u32', matches: true, redirectAllTo: undefined };
    return { ...rest, preference, protocol: protocolOf(subnet), classid, selector };
  });
  return { defaultMinor, shaped, unshaped, limitBytes, filters };
}

describe('planTree()', () => {
  test('limits unselected packets if the subnets are unshaped, and selected ones otherwise', () => {
    const { defaultMinor, filters } = plan();
    expect(defaultMinor).toBe(0x30);
    expect(filters).toEqual([
      { preference: 16, subnet: parseCidr('10.0.0.0/8'), end: 'source', classid: tcHandle(1, 1) },
      { preference: 15, subnet: parseCidr('fd00::/8'), end: 'source', classid: tcHandle(1, 1) },
    ]);
    const shaped = plan({ are: 'shaped' });
    expect(shaped.defaultMinor).toBe(1);
    expect(shaped.filters.map(({ classid }) => classid)).toEqual([tcHandle(1, 0x30), tcHandle(1, 0x30)]);
  });

  test('gives the limited class its rate as ceiling, and the other one more than any device has', () => {
    const { shaped, unshaped, limitBytes } = plan();
    expect(shaped).toMatchObject({ rateBytes: 1_250_000, ceilBytes: 1_250_000, bufferTicks: 781_250 });
    expect(unshaped).toMatchObject({ rateBytes: 1e11, ceilBytes: 1e11, bufferTicks: 0xffffffff });
    expect(limitBytes).toBe(93_750);
  });

  test.each([
    [1, 1500, 1518],
    [125_000, 1500, 12_500],
    [125_000, 65_521, 65_539],
    [1_250_000, 1500, 125_000],
    [12_500_000_000, 1500, 200_000],
  ])('at %d bytes/s and an MTU of %d a class has a quantum of %d bytes', (rateBytes, mtu, quantumBytes) => {
    const { shaped, unshaped } = plan({ tbf: { ...TBF, rateBytes }, mtu });
    expect([shaped.quantumBytes, unshaped.quantumBytes]).toEqual([quantumBytes, 200_000]);
  });

  test('queues a packet that a sender passed in one piece', () => {
    expect(plan({ tbf: { ...TBF, limitBytes: 3_000 } }).limitBytes).toBe(65_554);
  });
});

describe('findTreeDifferences()', () => {
  const tree = plan();
  const found = shown(tree);
  const { shaped, unshaped, filters } = found;
  const [first] = filters;

  test('finds none in what was planned, in any order', () => {
    expect(findTreeDifferences(tree, found)).toEqual([]);
    expect(findTreeDifferences(tree, { ...found, filters: filters.toReversed() })).toEqual([]);
  });

  const fast = { rateBytes: 2_000_000, ceilBytes: 3_000_000, bufferTicks: 5, quantumBytes: 7 };
  const expected = 'rate 10000000 bit/s, buffer 781250 ticks, quantum 125000 bytes';
  test.each<[Partial<FoundTree>, string]>([
    [{ defaultMinor: 1 }, 'default class: expected 1:30, found 1:1'],
    [{ shaped: undefined }, `limited class: expected ${expected}, found none`],
    [
      { shaped: fast },
      `limited class: expected ${expected}, found rate 16000000 bit/s, ceiling 24000000 bit/s, buffer 5 ticks, quantum 7 bytes`,
    ],
    [{ unshaped: undefined }, 'quantum 200000 bytes, found none'],
    [{ limitBytes: undefined }, 'queue: expected 93750 bytes, found no bound'],
    [{ filters: filters.slice(1) }, 'filter for source 10.0.0.0/8: expected one, found none'],
    [{ filters: [] }, 'filter for source fd00::/8: expected one, found none'],
    [
      { filters: [...filters, { ...filters[0], preference: 3 } as Filter] },
      'filter of kind "u32" and preference 3: expected none',
    ],
  ])('names %j', (damage, message) => {
    expect(findTreeDifferences(tree, { ...found, ...damage }).join('; ')).toContain(message);
  });

  test('compares class, protocol and direction of a filter', () => {
    for (const change of [
      { classid: tcHandle(1, 0x30) },
      { protocol: 3 },
      { selector: matchSubnet(parseCidr('10.0.0.0/8'), 'destination') },
    ]) {
      const changed = { ...found, filters: [{ ...first, ...change } as Filter, ...filters.slice(1)] };
      expect(findTreeDifferences(tree, changed)).toHaveLength(2);
    }
    expect([shaped, unshaped]).not.toContain(undefined);
  });
});

test('isReferenceTree() accepts twice the rate as ceiling, no queue limit, and filters by destination', () => {
  const tree = plan();
  const rateBytes = 1_250_000;
  const theirs: FoundTree = {
    ...shown(planTree(TBF, { are: 'unshaped', subnets: SUBNETS }, 'destination', 1500)),
    shaped: { rateBytes, ceilBytes: 2 * rateBytes, bufferTicks: 1, quantumBytes: 125_000 },
    unshaped: { rateBytes: 1e11, ceilBytes: 1e11, bufferTicks: 0, quantumBytes: 200_000 },
    limitBytes: undefined,
  };
  expect(isReferenceTree(tree, theirs)).toBe(true);
  expect(isReferenceTree(tree, shown(tree))).toBe(false);
  expect(isReferenceTree(tree, { ...theirs, filters: [] })).toBe(false);
  expect(isReferenceTree(tree, { ...theirs, defaultMinor: 1 })).toBe(false);
  expect(isReferenceTree(plan({ tbf: { ...TBF, rateBytes: 5 } }), theirs)).toBe(false);
});
