// Are the rules of our tables, byte for byte, those of the releases whose attachments are still in use?
// A digest that changes means that CHECK of an attachment made before fails: such a skeleton needs a new `version`.
import { expect, test } from 'bun:test';
import { BRIDGE_SKELETON, SKELETON } from '../../../plugins/firewall/plan.ts';
import { parseConditions, planSkeleton as planPortmap } from '../../../plugins/portmap/sets.ts';
import { planSkeleton as planMasquerade } from '../../../src/attach/masquerade.ts';
import { parseCidr } from '../../../src/net/ip.ts';
import { type Skeleton, skeletonChanges } from '../../../src/netlink/nft/skeleton.ts';

const pods = [
  ...['10.9.0.2/24', '10.8.0.2/24', '10.7.0.2/16', '10.7.0.2/32', '10.7.0.2/21'],
  ...['fd00::2/64', 'fd00::2/128', 'fd00::2/57'],
].map(parseCidr);
const conditions = parseConditions({
  conditionsV4: ['ip saddr 10.0.0.0/8'],
  conditionsV6: ['ip6 saddr fd00::/8'],
});

test.each<[string, Skeleton, string]>([
  ['portmap', planPortmap({ pods, conditions }), '1c1659f0a0f70e74'],
  ['firewall', SKELETON, '01bcb17497365d8a'],
  ['firewall within bridges', BRIDGE_SKELETON, '1b965ad6294ced56'],
  ['masquerading', planMasquerade(pods), 'c1a2331e79bb9e71'],
])('the rules of %s', (_what, skeleton, wanted) => {
  const digest = new Bun.CryptoHasher('sha256');
  for (const { op, body } of skeletonChanges(skeleton)) if (op.startsWith('add rule ')) digest.update(body);
  expect(digest.digest('hex').slice(0, 16)).toBe(wanted);
});
