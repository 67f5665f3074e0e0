// Which networks do tests give to the pods of a runtime?

import type { Row } from './netns.ts';

/** A bridge with both families; `net` is the second number of their addresses. */
export const bridged = (bridge: string, net: number): Row => ({
  type: 'bridge',
  bridge,
  isDefaultGateway: true,
  ipMasq: true,
  hairpinMode: true,
  ipam: { type: 'host-local', ranges: [[{ subnet: `10.${net}.0.0/16` }], [{ subnet: `fd00:${net}::/64` }]] },
});

/** The usual chain of a node's pods, with the capabilities that kubelet uses. */
export const PODS: Row = {
  cniVersion: '1.0.0',
  name: 'pods',
  plugins: [
    bridged('cni0', 22),
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'bandwidth', capabilities: { bandwidth: true } },
    { type: 'firewall' },
    { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' } },
  ],
};
