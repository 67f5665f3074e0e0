// Which limits does a configuration come down to, and which does it refuse?

import { describe, expect, test } from 'bun:test';
import {
  BandwidthConf,
  findSubnets,
  ignoresRuntime,
  isUnlimited,
  limitsOf,
  parseAmount,
} from '../../../../plugins/bandwidth/config.ts';
import { decode, type JsonObject } from '../../../../src/cni/json.ts';
import { parseCidr, renderCidr } from '../../../../src/net/ip.ts';

function limitsIn(keys: JsonObject) {
  const request = { type: 'bandwidth', ...keys };
  return limitsOf(decode(BandwidthConf, request, 'configuration'), request);
}

const RUNTIME = { runtimeConfig: { bandwidth: { egressRate: 16, egressBurst: 24 } } };

test.each([
  [{ ...RUNTIME, ingressRate: 8 }, true],
  [{ ...RUNTIME, ingressRate: null }, true],
  [RUNTIME, false],
  [{ ...RUNTIME, unshapedSubnets: [] }, false],
  [{ ingressRate: 8, runtimeConfig: { bandwidth: { egressRate: 0 } } }, false],
  [{ ingressRate: 8 }, false],
])('ignoresRuntime() of %j is %j', (keys, expected) => {
  const request = { type: 'bandwidth', ...keys };
  expect(ignoresRuntime(decode(BandwidthConf, request, 'configuration'), request)).toBe(expected);
});

describe('limitsOf()', () => {
  test('returns no limits without options', () => {
    expect(limitsIn({})).toEqual({});
    expect(limitsIn({ ingressRate: 0, ingressBurst: 0 })).toEqual({});
    expect(limitsIn({ runtimeConfig: {} })).toEqual({});
    expect(limitsIn({ runtimeConfig: { bandwidth: null } })).toEqual({});
  });

  test('reads both directions', () => {
    expect(limitsIn({ ingressRate: 8, ingressBurst: 80, egressRate: 16, egressBurst: 160 })).toEqual({
      ingress: { rateBits: 8, burstBits: 80 },
      egress: { rateBits: 16, burstBits: 160 },
    });
  });

  test('uses the limits of the runtime if the configuration has none', () => {
    expect(limitsIn(RUNTIME)).toEqual({ egress: { rateBits: 16, burstBits: 24 } });
  });

  test.each([{ ingressRate: 0 }, { ingressRate: null }, { INGRESSBURST: 0 }])(
    'ignores the runtime if the configuration has %j',
    own => {
      expect(limitsIn({ ...RUNTIME, ...own })).toEqual({});
    },
  );

  test('never merges configuration and runtime', () => {
    expect(limitsIn({ ...RUNTIME, ingressRate: 8, ingressBurst: 8 })).toEqual({
      ingress: { rateBits: 8, burstBits: 8 },
    });
  });

  test('takes subnets from the configuration or the runtime, independently of the limits', () => {
    const limits = { egress: { rateBits: 16, burstBits: 24 } };
    const subnets = { are: 'unshaped', subnets: [parseCidr('10.0.0.0/8')] } as const;
    const list = { unshapedSubnets: ['10.0.0.0/8'] };
    expect(limitsIn({ ...RUNTIME, ...list })).toEqual({ ...limits, subnets });
    expect(limitsIn({ egressRate: 16, egressBurst: 24, runtimeConfig: { bandwidth: list } })).toEqual({
      ...limits,
      subnets,
    });
    const both = { runtimeConfig: { bandwidth: { ...RUNTIME.runtimeConfig.bandwidth, ...list } } };
    expect(limitsIn(both)).toEqual({ ...limits, subnets });
    expect(limitsIn({ ...both, unshapedSubnets: [] })).toEqual(limits);
  });

  test('ignores subnets if nothing is limited', () => {
    expect(limitsIn({ unshapedSubnets: ['nonsense'], shapedSubnets: 5 })).toEqual({});
  });

  test('folds the letter case of keys', () => {
    expect(limitsIn({ EgressRate: 8, egressburst: 8 })).toEqual({ egress: { rateBits: 8, burstBits: 8 } });
    expect(limitsIn({ RuntimeConfig: { BandWidth: { IngressRate: 8, IngressBurst: 8 } } })).toEqual({
      ingress: { rateBits: 8, burstBits: 8 },
    });
  });

  test('accepts units, and a rate alone', () => {
    expect(limitsIn({ ingressRate: '10Mbit', ingressBurst: '64KiB', egressRate: '1Gbit/s' })).toEqual({
      ingress: { rateBits: 10_000_000, burstBits: 524_288 },
      egress: { rateBits: 1_000_000_000 },
    });
    expect(limitsIn({ runtimeConfig: { BandWidth: { IngressRate: '1MB' } } })).toEqual({
      ingress: { rateBits: 8_000_000 },
    });
    expect(limitsIn({ ...RUNTIME, ingressRate: '0bit' })).toEqual({});
    expect(limitsIn({ egressRate: 8, egressBurst: 0 })).toEqual({ egress: { rateBits: 8 } });
  });

  test('accepts the largest burst and refuses one byte more', () => {
    expect(limitsIn({ ingressRate: 8, ingressBurst: 34_359_738_359 })).toMatchObject({ ingress: {} });
    expect(() => limitsIn({ ingressRate: 8, ingressBurst: 34_359_738_360 })).toThrow(
      'Cannot use "ingressBurst" 34359738360: burst cannot be more than 4GB (34359738359 bits)',
    );
  });

  test.each([
    [{ ingressBurst: 8 }, 'if burst is set, rate must also be set'],
    [{ egressRate: 7, egressBurst: 8 }, 'the smallest rate is 8 bit/s'],
    [{ ingressRate: -1, ingressBurst: 8 }, '"ingressRate" must be at least 0, found -1'],
    [{ egressRate: 1.5, egressBurst: 8 }, 'must be of type int'],
    [{ egressRate: 2 ** 60, egressBurst: 8 }, '"egressRate" must be'],
    [
      { egressRate: '8', egressBurst: 8 },
      '"egressRate": "8": expected a number of bits, or a string such as "10Mbit"',
    ],
    [{ egressRate: '8Mbit', egressBurst: '1Mbit/s' }, 'a burst is an amount, not a rate'],
    [{ runtimeConfig: { bandwidth: { egressRate: '8mbps' } } }, '"egressRate": "8mbps"'],
    [{ runtimeConfig: { bandwidth: 7 } }, 'Cannot use "runtimeConfig.bandwidth"'],
  ])('refuses %j', (keys, message) => {
    expect(() => limitsIn(keys)).toThrow(message);
  });
});

test('isUnlimited() considers both directions', () => {
  expect(isUnlimited({})).toBe(true);
  expect(isUnlimited({ egress: { rateBits: 8, burstBits: 8 } })).toBe(false);
});

describe('parseAmount()', () => {
  test.each([
    ['10Mbit', 10_000_000],
    ['1Gbit', 1_000_000_000],
    ['500kbit', 500_000],
    ['1.5 Gbit/s', 1_500_000_000],
    ['8bit', 8],
    ['1Kibit', 1_024],
    ['64KiB', 524_288],
    ['1MB', 8_000_000],
    ['2.5MB/s', 20_000_000],
    ['100B', 800],
    ['4Tbit', 4_000_000_000_000],
    ['0bit', 0],
  ])('of "%s" is %d bits', (text, bits) => {
    expect(parseAmount('ingressRate', text)).toBe(bits);
  });

  test.each([
    '',
    '10',
    'Mbit',
    '10Mb',
    '10mbit',
    '10mbps',
    '-1Mbit',
    '1e3bit',
    '10 Mbit/h',
    '٣Mbit',
    ' 1Mbit',
    '1Kbit\n',
  ])('refuses "%s"', text => {
    expect(() => parseAmount('ingressRate', text)).toThrow(
      `Cannot use "ingressRate": "${text}": expected a number of bits`,
    );
  });

  test('refuses what a number cannot hold', () => {
    expect(() => parseAmount('egressRate', '9999999Tbit')).toThrow('at most 9007199254740991 bits');
  });
});

function found(...sources: unknown[]) {
  const subnets = findSubnets(sources);
  return subnets && [subnets.are, ...subnets.subnets.map(renderCidr)];
}

describe('findSubnets()', () => {
  test('returns nothing without lists', () => {
    expect(found({}, undefined, null, 'x')).toBeUndefined();
    expect(found({ shapedSubnets: [], unshapedSubnets: null })).toBeUndefined();
  });

  test('reads a list, without host bits and each subnet once', () => {
    expect(found({ shapedSubnets: ['10.1.2.3/8', '10.0.0.0/8', 'FD00::1/8'] })).toEqual([
      'shaped',
      '10.0.0.0/8',
      'fd00::/8',
    ]);
    expect(found({ UnshapedSubnets: ['::ffff:10.0.0.0/104', '0.0.0.0/0'] })).toEqual([
      'unshaped',
      '10.0.0.0/8',
      '0.0.0.0/0',
    ]);
  });

  test('uses the first source that has a list, even an empty one', () => {
    expect(found({}, { shapedSubnets: ['10.0.0.0/8'] })).toEqual(['shaped', '10.0.0.0/8']);
    expect(found({ unshapedSubnets: ['fd00::/8'] }, { shapedSubnets: ['10.0.0.0/8'] })).toEqual([
      'unshaped',
      'fd00::/8',
    ]);
    expect(found({ unshapedSubnets: [] }, { shapedSubnets: ['10.0.0.0/8'] })).toBeUndefined();
  });

  test.each([
    [{ shapedSubnets: ['10.0.0.0/8'], unshapedSubnets: ['fd00::/8'] }, 'cannot be both specified'],
    [{ shapedSubnets: ['10.0.0.0/33'] }, 'Cannot use "shapedSubnets": bad subnet "10.0.0.0/33" provided'],
    [{ unshapedSubnets: ['10.0.0.0'] }, 'Cannot use "unshapedSubnets": bad subnet "10.0.0.0" provided'],
    [{ unshapedSubnets: [10] }, 'bad subnet 10 provided, expected one such as "10.0.0.0/8" or "fd00::/8"'],
    [{ unshapedSubnets: {} }, 'it must be a list of subnets, found {}'],
    [
      { shapedSubnets: Array.from({ length: 4_001 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`) },
      'it has 4001 IPv4 subnets, the kernel accepts 4000',
    ],
  ])('refuses %j', (source, message) => {
    expect(() => findSubnets([source])).toThrow(message);
  });
});
