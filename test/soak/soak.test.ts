// Does nothing stay behind, in the kernel, on disk or in the process, when attachments come and go? (short form)

import { expect, test } from 'bun:test';
import { describeRoot } from '../helpers/skip.ts';
import { runSoak } from './soak.ts';

const LIVES = 200;

describeRoot('soak', () => {
  test.each([
    ['bridge with host-local', 'bridge'],
    ['all five links', 'chain'],
  ] as const)(
    '[1.1.0] %s: 100 attachments, eight at a time, all verbs mixed',
    async (_title, name) => {
      const { samples, left } = await runSoak(name, LIVES / 2, 25);
      const [first, last] = [samples[0], samples.at(-1)];
      expect(last?.problems).toEqual([]);
      expect(Object.entries(left).filter(([, names]) => names.length > 0)).toEqual([]);
      expect(last).toMatchObject({ lives: 'end', children: 0 });
      expect(last?.abandoned).toBeGreaterThan(0);
      // While others are at work each has some pipes open; none may stay.
      expect(last?.descriptors).toBeLessThanOrEqual(first?.descriptors ?? 0);
    },
    120_000,
  );
});
