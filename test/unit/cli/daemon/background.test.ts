// Is the number of events limited, also when every attachment of a node is repaired at once?

import { expect, test } from 'bun:test';
import { EventBudget } from '../../../../src/cli/daemon/background.ts';

test('25 at once, then five a minute; those left out are counted', () => {
  const budget = new EventBudget(0);
  const allowed = (count: number, now: number) =>
    Array.from({ length: count }, () => budget.take(now)).filter(Boolean).length;
  expect(allowed(1_000, 0)).toBe(25);
  expect(budget.takeOmitted()).toBe(975);
  expect(budget.takeOmitted()).toBe(0);
  expect(allowed(1_000, 60_000)).toBe(5);
  expect(allowed(1_000, 3_600_000)).toBe(25);
});
