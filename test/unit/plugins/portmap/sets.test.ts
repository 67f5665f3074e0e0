// Is the skeleton the same for every attachment, except for prefix lengths and conditions in use?
import { expect, test } from 'bun:test';
import { PortmapConf } from '../../../../plugins/portmap/config.ts';
import {
  FIXED_SETS,
  findConditionalSet,
  parseConditions,
  planSkeleton,
  snatChain,
  whenChain,
} from '../../../../plugins/portmap/sets.ts';
import { decode } from '../../../../src/cni/json.ts';
import { parseCidr } from '../../../../src/net/ip.ts';

const pods = ['10.9.0.2/24', '10.8.0.2/24', '10.7.0.2/16', 'fd00::2/64'].map(parseCidr);
const conf = { cniVersion: '1.1.0', name: 'n', type: 'portmap', conditionsV4: ['ip saddr 10.0.0.0/8'] };
const [condition] = parseConditions(decode(PortmapConf, conf, 'configuration'));
const conditions = condition ? [condition] : [];

test('snatChain() is one per prefix length', () => {
  expect(pods.map(snatChain)).toEqual(['snat4_24', 'snat4_24', 'snat4_16', 'snat6_64']);
});

test('planSkeleton() puts chains before the rules that jump to them', () => {
  expect(planSkeleton({ pods, conditions }).chains.map(({ name }) => name)).toEqual([
    'snat4_24',
    'snat4_16',
    'snat6_64',
    'snat_all',
    ...conditions.map(whenChain),
    'conditions4',
    'conditions6',
    'hostports',
    'guard',
    'prerouting',
    'output',
    'postrouting',
  ]);
});

test('planSkeleton() has maps for each of the conditions', () => {
  const names = planSkeleton({ pods, conditions }).sets.map(({ name }) => name);
  expect(names.slice(FIXED_SETS.length)).toEqual(
    ['wildcard4', 'specific4'].map(name => `${name}_${condition?.handle}`),
  );
});

test('findConditionalSet() knows those sets by name, and no others', () => {
  for (const set of planSkeleton({ pods, conditions }).sets.slice(FIXED_SETS.length)) {
    expect(findConditionalSet(set.name)).toEqual(set);
  }
  for (const { name } of FIXED_SETS) expect(findConditionalSet(name)).toBeUndefined();
});

test('FIXED_SETS have names of their own', () => {
  expect(new Set(FIXED_SETS.map(({ name }) => name)).size).toBe(FIXED_SETS.length);
});
