// Which containers does the node route packets to?

import { expect, test } from 'bun:test';
import { routedPods } from '../../../../src/node/doctor/node-view.ts';
import type { NodeAttachment } from '../../../../src/node/model.ts';

test('those behind a pair and a bridge, not those on the link of a device of the node', () => {
  const on = (containerId: string, kind: string, hostDevice: object) =>
    ({
      ...{ network: 'lan', containerId, ifname: 'eth0', state: 'attached', addresses: ['10.1.0.2/24'] },
      ...{ ports: [], device: { kind }, hostDevice },
    }) as unknown as NodeAttachment;
  const attachments = [
    on('bridged', 'veth', { name: 'veth1', master: 'br0' }),
    on('routed', 'veth', { name: 'br0' }),
    on('beside', 'macvlan', { name: 'br0' }),
  ];
  const routes = [{ destination: '10.1.0.0/24', device: 'br0' }];
  const pods = routedPods({ attachments }, { routes }) ?? [];
  expect(pods.map(({ containerId }) => containerId)).toEqual(['bridged', 'routed']);
});
