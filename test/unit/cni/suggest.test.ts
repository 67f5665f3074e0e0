import { describe, expect, test } from 'bun:test';
import { didYouMean, editDistance, findNearest } from '../../../src/cni/suggest.ts';

describe('editDistance()', () => {
  test.each([
    ['', '', 0],
    ['mtu', 'mtu', 0],
    ['', 'mtu', 3],
    ['mtu', '', 3],
    ['mtuu', 'mtu', 1],
    ['bridg', 'bridge', 1],
    ['bandwitdh', 'bandwidth', 1],
    ['isGatway', 'isGateway', 1],
    ['kitten', 'sitting', 3],
    ['ab', 'ba', 1],
  ])('of %j and %j is %d', (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance);
    expect(editDistance(b, a)).toBe(distance);
  });
});

describe('findNearest()', () => {
  const known = ['mtu', 'bridge', 'isGateway', 'isDefaultGateway', 'ipMasq', 'ipam', 'dns'];

  test.each([
    ['isgateway', 'isGateway'],
    ['isGatewy', 'isGateway'],
    ['isDefaultGatway', 'isDefaultGateway'],
    ['ipmask', 'ipMasq'],
    ['bridgee', 'bridge'],
    ['mtuu', 'mtu'],
    ['ipma', 'ipam'],
  ])('finds for %s the name %s', (word, expected) => {
    expect(findNearest(word, known)).toBe(expected);
  });

  test.each(['vlanTrunk', 'x', 'comment', 'hairpin'])('finds nothing similar to %s', word => {
    expect(findNearest(word, known)).toBeUndefined();
  });
});

test('didYouMean() returns a clause to append, or nothing', () => {
  expect(didYouMean('mtuu', ['mtu'])).toBe('; did you mean "mtu"?');
  expect(didYouMean('colour', ['mtu'])).toBe('');
});
