// Is the skeleton the same for everybody but for the prefix lengths in use?
import { expect, test } from 'bun:test';
import { ALL_SETS, planChains, skeletonChanges, snatChain } from '../../../../plugins/portmap/skeleton.ts';
import { parseCidr } from '../../../../src/net/cidr.ts';

const pods = ['10.9.0.2/24', '10.8.0.2/24', '10.7.0.2/16', 'fd00::2/64'].map(parseCidr);

test('snatChain() is one per prefix length', () => {
  expect(pods.map(snatChain)).toEqual(['snat4_24', 'snat4_24', 'snat4_16', 'snat6_64']);
});

test('planChains() puts chains before the rules that jump to them', () => {
  expect(planChains(pods).map(({ name }) => name)).toEqual([
    'snat4_24',
    'snat4_16',
    'snat6_64',
    'snat_all',
    'hostports',
    'guard',
    'prerouting',
    'output',
    'postrouting',
  ]);
});

test('skeletonChanges() empties each chain before it fills it', () => {
  const ops = skeletonChanges(pods).map(({ op }) => op);
  for (const { name } of planChains(pods)) {
    const flush = ops.findIndex(op => op.startsWith(`flush chain "${name}"`));
    expect(flush).toBeGreaterThan(ops.findIndex(op => op.startsWith(`add chain "${name}"`)));
    expect(flush).toBeLessThan(ops.findIndex(op => op.startsWith(`add rule to chain "${name}"`)));
  }
});

test('ALL_SETS have names of their own', () => {
  expect(new Set(ALL_SETS.map(({ name }) => name)).size).toBe(ALL_SETS.length);
});
