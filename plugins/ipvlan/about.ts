// What can tools know about ipvlan without running it?
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { flagsOf, IpvlanConf, modeOf, validateIpvlanConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: "connects the container to the link of a host interface, with that interface's hardware address",
  capabilities: [],
  config: IpvlanConf,
  needsGatewayInSubnet: true,
  validate: validateIpvlanConf,
  reachOf(request) {
    const conf = decode(IpvlanConf, request, 'request');
    const casts = modeOf(conf) === 'l2' ? '' : ', without broadcasts and multicasts';
    return [
      `containers and machines on the network of the master reach each other${casts}`,
      NEIGHBOURS[flagsOf(conf)],
      'host and containers do not reach each other: the kernel keeps a master apart from its interfaces',
    ];
  },
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

const NEIGHBOURS: Readonly<Record<ReturnType<typeof flagsOf>, string>> = {
  bridge: 'containers on one master reach each other',
  private: 'containers on one master do not reach each other',
  vepa: 'containers on one master reach each other only if the switch sends their frames back',
};
