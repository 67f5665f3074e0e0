import { expect, test } from 'bun:test';
import { type Hop, type Walk, walkOn } from '../../../../src/node/packet/site.ts';

function* walk(states: readonly Hop['state'][], arrives: boolean): Walk<boolean> {
  for (const state of states) yield { name: 'rules', at: 'node', state, evidence: '' };
  return arrives;
}

test.each([
  [['passes', 'passes'], true, 'arrives', 2],
  [['passes', 'unknown'], true, 'unknown', 2],
  [['passes'], false, 'unknown', 1],
  [['unknown', 'stops', 'passes'], true, 'stopped', 2],
] as const)('%j, to its end: %s', (states, arrives, outcome, count) => {
  const found = walkOn(walk(states, arrives));
  expect([found.outcome, found.hops.length]).toEqual([outcome, count]);
});
