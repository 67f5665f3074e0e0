// What can tools know about ptp without running it?
import { reachBeyondHost } from '../../src/attach/reach.ts';
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin, mtuOf } from '../../src/cni/plugin-about.ts';
import { ANYWHERE } from '../../src/net/ip.ts';
import { PtpConf, validatePtpConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to the host alone: addresses, routes, masquerading',
  capabilities: [],
  config: PtpConf,
  validate: conf => void validatePtpConf(conf),
  networkKinds: [
    {
      name: 'ptp',
      text: 'each container has a cable of its own to the node, and reaches the others through it',
      onLan: false,
      mayUseDhcp: false,
      answersOutside: true,
      configure({ ipam, subnets }) {
        const routes = subnets.map(({ ip }) => ({ dst: ANYWHERE[ip.family] }));
        return { ipMasq: true, ...(ipam && { ipam: { ...ipam, routes } }) };
      },
    },
  ],
  devicesOf: ({ mtu }) => [{ mtu: mtuOf(mtu) }],
  effectsOf(request) {
    const { ipMasq } = decode(PtpConf, request, 'request');
    return { policies: ipMasq ? ['masquerades traffic to other subnets'] : [] };
  },
  reachOf(request) {
    const { ipam, ipMasq } = decode(PtpConf, request, 'request');
    return [
      'host and container reach each other',
      'containers reach each other through the host, which forwards their packets',
      ...reachBeyondHost({ ipam, ipMasq }),
    ];
  },
});
