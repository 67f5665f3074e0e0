// What can tools know about ipvlan without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { IpvlanConf, validateIpvlanConf } from './config.ts';

/** The ipvlan plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  summary: "connects the container to the link of a host interface, with that interface's hardware address",
  capabilities: [],
  config: IpvlanConf,
  needsGatewayInSubnet: true,
  validate: validateIpvlanConf,
  networkKinds: [
    {
      name: 'ipvlan',
      text: "containers are machines of the node's LAN, behind the node's hardware address",
      onLan: true,
      mayUseDhcp: false,
      answersOutside: true,
      configure: ({ ipam, device }) => ({
        ...(device !== undefined && { master: device }),
        ...(ipam && { ipam }),
      }),
    },
  ],
});
