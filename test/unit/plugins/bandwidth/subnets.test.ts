// Whose traffic do the lists name, and which lists are invalid?
import { describe, expect, test } from 'bun:test';
import { findSubnets } from '../../../../plugins/bandwidth/subnets.ts';
import { renderCidr } from '../../../../src/net/ip.ts';

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
