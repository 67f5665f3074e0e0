// What can tools know about ptp without running it?
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin, mtuOf } from '../../src/cni/plugin-about.ts';
import { PtpConf, validatePtpConf } from './config.ts';

/** The ptp plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to the host alone: addresses, routes, masquerading',
  capabilities: [],
  config: PtpConf,
  validate: conf => void validatePtpConf(conf),
  devicesOf: ({ mtu }) => [{ mtu: mtuOf(mtu) }],
  effectsOf(request) {
    const { ipMasq } = decode(PtpConf, request, 'request');
    return { policies: ipMasq ? ['masquerades traffic to other subnets'] : [] };
  },
});
