// Does everything or nothing remain after a fault, at any request of any verb? (short form of `npm run survive`)

import { expect, setDefaultTimeout, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { faults } from './faults.ts';

setDefaultTimeout(deadline(600_000));

describeRoot(
  'the full chain',
  () => {
    test('leaves everything or nothing behind, whichever request fails or is the last', async () => {
      const { tried, table, wrong } = await faults.run({ short: true, say() {} });
      process.stdout.write(`${table}\n`);
      expect(wrong).toEqual([]);
      expect(tried).toBeGreaterThan(50);
    });
  },
  requires('strace'),
);
