// What can tools know about macvlan without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { MacvlanConf, validateMacvlanConf } from './config.ts';

/** The macvlan plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to the link of a host interface, with a hardware address of its own',
  capabilities: ['mac'],
  config: MacvlanConf,
  needsGatewayInSubnet: true,
  validate: validateMacvlanConf,
  networkKinds: [
    {
      name: 'macvlan',
      text: "containers are machines of the node's LAN, each with a hardware address",
      onLan: true,
      mayUseDhcp: true,
      answersOutside: true,
      configure: ({ ipam, device }) => ({
        ...(device !== undefined && { master: device }),
        ...(ipam && { ipam }),
      }),
    },
  ],
});
