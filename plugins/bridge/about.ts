// What can tools know about bridge without running it?
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin, mtuOf } from '../../src/cni/plugin-about.ts';
import { BridgeConf, DEFAULT_BRIDGE, validateBridgeConf } from './config.ts';

/** The bridge plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to a Linux bridge: addresses, gateway, routes, masquerading',
  capabilities: ['mac'],
  config: BridgeConf,
  validate: validateBridgeConf,
  devicesOf: ({ bridge, mtu }) => [
    { name: typeof bridge === 'string' ? bridge : DEFAULT_BRIDGE, mtu: mtuOf(mtu) },
  ],
  needsOf: ({ uplinkInterface }) =>
    typeof uplinkInterface === 'string' && uplinkInterface !== ''
      ? [{ name: uplinkInterface, path: ['uplinkInterface'] }]
      : [],
  effectsOf(request) {
    const conf = decode(BridgeConf, request, 'request');
    const policies = [
      conf.ipMasq && 'masquerades traffic to other subnets',
      conf.macspoofchk && 'drops frames with a source address other than its own',
      conf.portIsolation && 'cannot reach other isolated ports of its bridge',
      conf.vlan > 0 && `is in VLAN ${conf.vlan}`,
    ];
    return { policies: policies.filter(one => one !== false) };
  },
});
