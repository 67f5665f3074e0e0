// What can tools know about macvlan without running it?
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { MacvlanConf, modeOf, validateMacvlanConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to the link of a host interface, with a hardware address of its own',
  capabilities: ['mac'],
  config: MacvlanConf,
  needsGatewayInSubnet: true,
  validate: validateMacvlanConf,
  reachOf(request) {
    const conf = decode(MacvlanConf, request, 'request');
    return [
      'containers and machines on the network of the master reach each other',
      NEIGHBOURS[modeOf(conf)],
      conf.hostAccess
        ? 'the host reaches containers by an interface of its own on the master, and they reach it'
        : 'host and containers do not reach each other: the kernel keeps a master apart from its interfaces',
    ];
  },
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

const NEIGHBOURS: Readonly<Record<ReturnType<typeof modeOf>, string>> = {
  bridge: 'containers on one master reach each other',
  private: 'containers on one master do not reach each other',
  vepa: 'containers on one master reach each other only if the switch sends their frames back',
  passthru: 'the container is the only one on its master',
};
