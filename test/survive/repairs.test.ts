// Does the next daemon complete a repair that was cut short? (short form of `npm run survive -- --only repairs`)

import { expect, setDefaultTimeout, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { repairs } from './repairs.ts';

setDefaultTimeout(deadline(600_000));

describeRoot(
  'a repair by the daemon',
  () => {
    test('is completed by the next one, whichever request was its last', async () => {
      const { tried, table, wrong } = await repairs.run({ short: true, say() {} });
      process.stdout.write(`${table}\n`);
      expect(wrong).toEqual([]);
      expect(tried).toBeGreaterThan(2);
    });
  },
  requires('strace'),
);
