// Which u32 selectors let every packet through?

import { expect, test } from 'bun:test';
import { MATCH_ALL, matchesAll, tcU32Key } from '../../../../src/netlink/rtnl/filter.ts';

test('matchesAll() is true for a key with an empty mask', () => {
  expect(matchesAll(MATCH_ALL)).toBe(true);
  expect(matchesAll({ flags: 1, keys: [] })).toBe(true);
});

test('matchesAll() is false for a key with a mask, and for a selector that is not terminal', () => {
  expect(matchesAll({ flags: 1, keys: [tcU32Key.zero, { ...tcU32Key.zero, mask: 0xff }] })).toBe(false);
  expect(matchesAll({ flags: 0, keys: [tcU32Key.zero] })).toBe(false);
});
