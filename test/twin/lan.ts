// What is the network that the devices of a host lead to, for chains without a bridge?

import type { Lab, Namespace } from '../helpers/netns.ts';

/** Devices of the host on that network: one to put macvlans on, and one to move into each pod. */
export const LAN = { master: 'up0', moved: { one: 'up1', peer: 'up2' } } as const;

/** Connects the devices to a bridge beyond the host, which has the gateway's addresses. */
export async function connectLan(lab: Lab, outside: Namespace): Promise<void> {
  const bridge = 'lan0';
  await lab.ip(outside, 'link', 'add', bridge, 'type', 'bridge');
  await lab.ip(outside, 'addr', 'add', '10.88.0.1/24', 'dev', bridge);
  await lab.ip(outside, 'addr', 'add', 'fd88::1/64', 'dev', bridge, 'nodad');
  await lab.ip(outside, 'link', 'set', bridge, 'up');
  for (const device of [LAN.master, LAN.moved.one, LAN.moved.peer]) {
    const far = ['peer', 'name', `far-${device}`, 'netns', outside.name];
    await lab.ip(lab.host, 'link', 'add', device, 'type', 'veth', ...far);
    await lab.ip(outside, 'link', 'set', `far-${device}`, 'master', bridge, 'up');
  }
  await lab.ip(lab.host, 'link', 'set', LAN.master, 'up');
}
