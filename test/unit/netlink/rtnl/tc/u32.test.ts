// Which u32 selectors let every packet through?
import { expect, test } from 'bun:test';
import { MATCH_ALL, matchesAll, tcU32Key } from '../../../../../src/netlink/rtnl/tc/u32.ts';

test('matchesAll() is true for a key that asks nothing', () => {
  expect(matchesAll(MATCH_ALL)).toBe(true);
  expect(matchesAll({ flags: 1, keys: [] })).toBe(true);
});

test('matchesAll() is false for a key that asks, and for a selector that does not end the search', () => {
  expect(matchesAll({ flags: 1, keys: [tcU32Key.zero, { ...tcU32Key.zero, mask: 0xff }] })).toBe(false);
  expect(matchesAll({ flags: 0, keys: [tcU32Key.zero] })).toBe(false);
});
