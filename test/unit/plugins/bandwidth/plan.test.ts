// Do the buckets have the numbers of the reference where those work, and working ones where they do not?

import { describe, expect, test } from 'bun:test';
import {
  type FoundTree,
  findTreeDifferences,
  isReferenceTree,
  planBucket,
  planShaping,
  planTree,
  type Tree,
} from '../../../../plugins/bandwidth/plan.ts';
import { parseCidr } from '../../../../src/net/ip.ts';
import { type Filter, matchSubnet, protocolOf } from '../../../../src/netlink/rtnl/filter.ts';
import { tcHandle } from '../../../../src/netlink/rtnl/qdisc.ts';

const TICKS_PER_US = 15.625;
/** Small enough that no bucket of these tests is raised. */
const NO_FRAME = { mtu: -18, ticksPerUs: TICKS_PER_US };
const ETHERNET = { mtu: 1500, ticksPerUs: TICKS_PER_US };

/** What the kernel makes of a bucket (net/sched/sch_tbf.c, psched_ns_t2l): its largest packet. */
function largestPacket(rateBytes: number, bufferTicks: number): bigint {
  return (BigInt(bufferTicks) * 64n * BigInt(rateBytes)) / 1_000_000_000n;
}

describe('planBucket()', () => {
  test.each([
    [8, 8, 1, 15_625_000, 1],
    [16, 8, 2, 7_812_500, 1],
    [8_000, 80, 1_000, 156_250, 35],
    [1_000_000, 2_000_000, 125_000, 31_250_000, 253_125],
    [10_000_000_000, 2_147_483_647, 1_250_000_000, 3_355_437, 299_685_455],
  ])(
    'for %d bit/s and %d bits has the numbers of the reference',
    (rateBits, burstBits, rateBytes, bufferTicks, limitBytes) => {
      const bucket = planBucket({ rateBits, burstBits }, NO_FRAME);
      const tbf = { rateBytes, bufferTicks, limitBytes };
      expect(bucket).toMatchObject({ tbf, accepted: [tbf, tbf], raisedFromBits: undefined });
    },
  );

  test.each([
    [1_000_000, 2_147_483_647, 3_489_660_803, 268_438_580, 268_438_580],
    [1_000, 34_359_738_359, 2_684_104_560, 1, 0xffffffff],
  ])(
    'for %d bit/s and %d bits stops at 32 bits, and accepts the overflow of the reference',
    (rateBits, burstBits, wrappedTicks, wrappedLimit, limitBytes) => {
      const { tbf, accepted, raisedFromBits } = planBucket({ rateBits, burstBits }, NO_FRAME);
      const rateBytes = rateBits / 8;
      expect(tbf).toEqual({ rateBytes, bufferTicks: 0xffffffff, limitBytes });
      expect(accepted).toEqual([tbf, { rateBytes, bufferTicks: wrappedTicks, limitBytes: wrappedLimit }]);
      expect(raisedFromBits).toBeUndefined();
    },
  );

  test.each([
    [100_000_000, 1500, 312_500],
    [1_000_000, 1500, 3_125],
    [8_000, 1500, 3_036],
    [8_000, 9000, 18_036],
    [10_000_000_000_000, 1500, 4_294_967_294],
  ])('for %d bit/s and an MTU of %d derives a burst of %d bytes', (rateBits, mtu, burstBytes) => {
    const derived = planBucket({ rateBits }, { ...ETHERNET, mtu });
    const configured = planBucket({ rateBits, burstBits: burstBytes * 8 }, { ...ETHERNET, mtu });
    expect(derived).toEqual({ ...configured, unlimitedMs: undefined });
    expect(derived.raisedFromBits).toBeUndefined();
  });

  test.each([
    [1_000_000, 990_000_000, undefined],
    [1_000_000, 1_100_000_000, 110],
    [1_000_000, 2_147_483_647, 215],
    [9_000_000_000, 200_000_000, 200],
    [20_000_000_000, 34_000_000_000, undefined],
    [20_000_000_000, undefined, undefined],
  ])('for %d bit/s and %p bits all traffic passes for %p ms', (rateBits, burstBits, ms) => {
    const limit = burstBits === undefined ? { rateBits } : { rateBits, burstBits };
    expect(planBucket(limit, ETHERNET).unlimitedMs).toBe(ms as never);
  });

  test('raises a bucket to a full frame and no further, at any rate', () => {
    for (const rateBits of [2_048, 12_345, 1e6, 1e8, 1.7e9, 1e10, 1e11, 4e11]) {
      for (const mtu of [68, 1_280, 1_500, 9_000, 65_535]) {
        const { tbf, accepted, raisedFromBits } = planBucket(
          { rateBits, burstBits: 8 },
          { ...ETHERNET, mtu },
        );
        expect(raisedFromBits).toBe(8);
        const packet = Number(largestPacket(tbf.rateBytes, tbf.bufferTicks));
        expect(packet).toBeGreaterThanOrEqual(mtu + 18);
        // The rest is what two microseconds are worth: the bucket is counted in whole ones.
        expect(packet).toBeLessThanOrEqual(mtu + 18 + Math.ceil((tbf.rateBytes * 2) / 1e6));
        expect(tbf.limitBytes).toBeGreaterThanOrEqual(mtu + 18);
        expect(accepted).toHaveLength(2);
      }
    }
  });

  test('keeps a bucket that a frame just fits into, after its time was rounded down to ticks', () => {
    const limit = { rateBits: 8_000_000, burstBits: 1_519 * 8 };
    expect(planBucket(limit, ETHERNET).raisedFromBits).toBeUndefined();
    expect(planBucket({ ...limit, burstBits: 1_518 * 8 }, ETHERNET).raisedFromBits).toBe(1_518 * 8);
  });
});

test('planShaping() has a bucket for each limit', () => {
  const limit = { rateBits: 1_000_000, burstBits: 1_000_000 };
  expect(planShaping({}, ETHERNET)).toEqual({});
  expect(Object.keys(planShaping({ egress: limit }, ETHERNET))).toEqual(['egress']);
  expect(Object.keys(planShaping({ ingress: limit, egress: limit }, ETHERNET))).toEqual([
    'ingress',
    'egress',
  ]);
});

test('planShaping() tells subnets by the source of what comes to the container, and by the destination of what it sends', () => {
  const limit = { rateBits: 1_000_000 };
  const subnets = { are: 'shaped', subnets: [parseCidr('10.0.0.0/8')] } as const;
  const { ingress, egress } = planShaping({ ingress: limit, egress: limit, subnets }, ETHERNET);
  expect(ingress?.tree.filters.map(({ end }) => end)).toEqual(['source']);
  expect(egress?.tree.filters.map(({ end }) => end)).toEqual(['destination']);
});

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
