// Are the names those that the reference gives?
import { expect, test } from 'bun:test';
import {
  chainKey,
  dnatChain,
  entryComment,
  ownerIn,
  snatChainOf,
  soleOwner,
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

test('ownerIn() reads whole comments only', () => {
  expect(ownerIn('dnat name: "n1" id: "ctr1"')).toEqual({ network: 'n1', containerId: 'ctr1' });
  expect(ownerIn(`dnat name: "n1" id: "${'x'.repeat(99)}...`)).toBeUndefined();
  expect(ownerIn('web name: "n1" id: "ctr1"')).toBeUndefined();
  expect(ownerIn(undefined)).toBeUndefined();
});

test('soleOwner() has a chain that no container has, and its comment leads back to it', () => {
  const sole = soleOwner({ network: 'n1', containerId: 'ctr1', ifname: 'net1' });
  expect(dnatChain(sole)).not.toBe(dnatChain({ network: 'n1', containerId: 'ctr1' }));
  expect(ownerIn(entryComment(sole))).toEqual(sole);
});

test('chainKey() begins as the hash of the chain, and fits the name of an interface', () => {
  const owner = { network: 'n1', containerId: 'ctr1' };
  expect(dnatChain(owner)).toStartWith(`CNI-DN-${chainKey(owner)}`);
  expect(chainKey(owner)).toHaveLength(15);
});
