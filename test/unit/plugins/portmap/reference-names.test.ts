// Are the names those that the reference gives?
import { expect, test } from 'bun:test';
import {
  containerIn,
  dnatChain,
  entryComment,
  snatChainOf,
} from '../../../../plugins/portmap/reference-names.ts';

test.each([
  ['n1', 'ctr1', 'c189d8b6a7b4d184c9f70'],
  ['podnet', '0123456789abcdef', '797f1dae695cd89d5e1ef'],
])('dnatChain() of %s and %s ends in %s', (network, containerId, digits) => {
  expect(dnatChain({ network, containerId })).toBe(`CNI-DN-${digits}`);
  expect(snatChainOf({ network, containerId })).toBe(`CNI-SN-${digits}`);
});

test('entryComment() fits a comment of iptables, whatever the names', () => {
  expect(entryComment({ network: 'n1', containerId: 'ctr1' })).toBe('dnat name: "n1" id: "ctr1"');
  expect(entryComment({ network: 'n1', containerId: 'x'.repeat(300) })).toHaveLength(255);
});

test('containerIn() takes comments of the network only', () => {
  expect(containerIn('dnat name: "n1" id: "ctr1"', 'n1')).toBe('ctr1');
  expect(containerIn('dnat name: "n12" id: "ctr1"', 'n1')).toBeUndefined();
  expect(containerIn(`dnat name: "n1" id: "${'x'.repeat(99)}...`, 'n1')).toBeUndefined();
  expect(containerIn(undefined, 'n1')).toBeUndefined();
});
