import { expect, test } from 'bun:test';
import { matcherOf } from '../../../../src/ui/page/search.ts';

test('every word must be in the text, in any order and case', () => {
  expect(matcherOf('')('anything')).toBe(true);
  expect(matcherOf(' Web  SHOP ')('shop/web-0 10.1.0.2')).toBe(true);
  expect(matcherOf('web 10.1.0.3')('shop/web-0 10.1.0.2')).toBe(false);
});
