// Does anything that comes in from outside crash, hang or mislead us? (short form)

import { expect, test } from 'bun:test';
import { describeRoot } from '../helpers/skip.ts';
import { renderFigures, runFuzz } from './run.ts';

const INPUTS = 5_000;

describeRoot('fuzz', () => {
  test(`${INPUTS} inputs through every door: a value or an error of the protocol, and no file elsewhere`, async () => {
    // A seed of its own every day: a failure prints what is needed to see it again.
    const report = await runFuzz({ inputs: INPUTS, seed: Math.floor(Date.now() / 86_400_000) });
    process.stdout.write(renderFigures(report));
    expect([report.failures, report.strays]).toEqual([[], []]);
    expect(report.inputs).toBeGreaterThanOrEqual(INPUTS);
  }, 60_000);
});
