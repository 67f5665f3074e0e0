// Does the next daemon complete a repair that was cut short? (short form of `npm run survive -- --only repairs`)

import { expect, test } from 'bun:test';
import { describeRoot, requires } from '../helpers/skip.ts';
import { repairs } from './repairs.ts';

describeRoot(
  'a repair by the daemon',
  () => {
    test('is completed by the next one, whichever request was its last', async () => {
      const { tried, table, wrong } = await repairs.run({ short: true, say() {} });
      process.stdout.write(`${table}\n`);
      expect(wrong).toEqual([]);
      expect(tried).toBeGreaterThan(2);
    }, 600_000);
  },
  requires('strace'),
);
