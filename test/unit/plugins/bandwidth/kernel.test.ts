// Are IFB devices named as the reference names them?

import { expect, test } from 'bun:test';
import { ifbNamesOf } from '../../../../plugins/bandwidth/kernel.ts';

test.each([
  ['cni-plugin-bandwidth-test', 'dummy', 'bwpa8eda89404b7'],
  ['n1', 'ctr1', 'bwpc189d8b6a7b4'],
])(
  'ifbNamesOf() network "%s" and container "%s" begins with the name of the reference',
  (network, containerId, name) => {
    const [first, second] = ifbNamesOf({ network, containerId, ifname: 'eth0' });
    expect(first).toBe(name);
    expect(second).toMatch(/^bwp[0-9a-f]{12}$/);
    expect(second).not.toBe(first);
  },
);

test('ifbNamesOf() distinguishes attachments of one container by the second name', () => {
  const names = ['eth0', 'net1'].map(ifname => ifbNamesOf({ network: 'n1', containerId: 'ctr1', ifname }));
  expect(new Set(names.map(([first]) => first)).size).toBe(1);
  expect(new Set(names.map(([, second]) => second)).size).toBe(2);
});
