// Is nothing leaked, in the kernel, on disk or in the process, when attachments come and go? (short form)

import { expect, setDefaultTimeout, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { describeRoot } from '../helpers/skip.ts';
import { findFaults, runChurn } from './churn.ts';
import { findLeaks, runSoak } from './soak.ts';

setDefaultTimeout(deadline(240_000));

const LIVES = 200;

describeRoot('soak', () => {
  test.each([
    ['bridge with host-local', 'bridge'],
    ['all five plugins', 'chain'],
  ] as const)(
    '[1.1.0] %s: attaches 100 containers, eight at a time, with all commands mixed',
    async (_title, name) => {
      const report = await runSoak(name, LIVES / 2, 25);
      expect(findLeaks(report)).toEqual([]);
      expect(report.samples.at(-1)).toMatchObject({ lives: 'end', children: 0 });
      expect(report.samples.at(-1)?.abandoned).toBeGreaterThan(0);
    },
  );

  test('through a daemon: every attachment is in the state reported to its caller, whatever is killed', async () => {
    const report = await runChurn({ requests: 150, killEveryMs: 300, seed: 1 });
    expect(findFaults(report)).toEqual([]);
    expect(report.killed.workers + report.killed.daemons).toBeGreaterThan(0);
  });
});
