// Are names of the reference's rules computed as the reference computes them?

import { expect, test } from 'bun:test';
import { attachmentChain, attachmentKey, networkKey } from '../../../src/attach/masquerade.ts';

test.each([
  ['test', '1234', 'CNI-2bbe0c48b91a7d1b8a6753a8'],
  ['net1', 'cid1', 'CNI-e8f6f419596f7f47b3468487'],
])('attachmentChain() of network %s and container %s', (network, containerId, chain) => {
  expect(attachmentChain({ network, containerId })).toBe(chain);
});

test.each([
  ['unit-test', '6fd94d501e58f0aa'],
  ['net1', '8e48f37d5de60467'],
])('networkKey() of %s', (network, key) => {
  expect(networkKey(network)).toBe(key);
});

test.each([
  ['one', '287fc69eff0574a2'],
  ['cid1', '0b65a318f52e521b'],
])('attachmentKey() of container %s', (containerId, key) => {
  const attachment = { network: 'net1', containerId, ifname: 'eth0' };
  expect(attachmentKey(attachment)).toBe(`8e48f37d5de60467-${key}`);
});
