// Does any input from outside crash, hang or mislead us? (short form)

import { expect, test } from 'bun:test';
import { describeRoot } from '../helpers/skip.ts';
import { readSources } from '../helpers/source-tree.ts';
import { QUESTIONS } from './doors/netlink.ts';
import { renderFigures, runFuzz } from './run.ts';

const INPUTS = 5_000;

describeRoot('fuzz', () => {
  test(`${INPUTS} inputs per door yield a value or an error of the protocol, and no file elsewhere`, async () => {
    // A new seed every day: a failure prints what is needed to reproduce it.
    const report = await runFuzz({ inputs: INPUTS, seed: Math.floor(Date.now() / 86_400_000) });
    process.stdout.write(renderFigures(report));
    expect([report.failures, report.strayFiles]).toEqual([[], []]);
    expect(report.inputs).toBeGreaterThanOrEqual(INPUTS);
  }, 300_000);
});

test('damaged replies cover every request to the kernel', () => {
  const asking = /export function ((?:list|find|get|count)\w+)\(\s*socket: NetlinkSocket/g;
  const names = readSources('src/netlink').flatMap(({ code }) =>
    Array.from(code.matchAll(asking), ([, name = '']) => name),
  );
  expect(names.length).toBeGreaterThan(20);
  // A new one needs a line in QUESTIONS of doors/netlink.ts.
  expect(names.filter(name => !(name in QUESTIONS))).toEqual([]);
});
