// Does every caller get what it was told, when all of them act at once? (short form of `npm run storm`)

import { expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { describeRoot, requiresReference, requiresUpperKind } from '../helpers/skip.ts';
import { runStorm } from './storm.ts';
import { render } from './table.ts';

/** The same in each run, and some that no run had before. */
const FIXED = [1, 2, 3, 4, 5, 6];
const RANDOM = 3;
/** No seed is begun later; the last ones then have some time to end. */
const MINUTES = 1.5;

describeRoot(
  'a node where all act at once',
  () => {
    test(
      'keeps every promise that a caller was given, and nothing of what was deleted',
      async () => {
        const random = Array.from({ length: RANDOM }, () => Math.floor(Math.random() * 1e9) + 1e6);
        process.stdout.write(`random seeds: ${random.join(', ')}\n`);
        const plan = { minutes: MINUTES, nodes: 3, steps: 80, secondsPerSeed: 30, without: [] };
        const report = await runStorm(
          { ...plan, seeds: [...random, ...FIXED], shrinkSeconds: 0, stopAfter: 3 },
          new AbortController().signal,
        );
        const table = render(report, ({ first }) => `--seed ${first.seed} --seeds 1 --steps ${plan.steps}`);
        process.stdout.write(`${table}\n`);
        expect(report.findings.map(({ rule }) => rule)).toEqual([]);
        expect(report.steps).toBeGreaterThan(100);
      },
      deadline((MINUTES + 4) * 60_000),
    );
  },
  requiresReference('bridge', 'host-local', 'portmap'),
  requiresUpperKind('macvlan'),
);
