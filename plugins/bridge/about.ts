// What can tools know about bridge without running it?
import { aboutPlugin, mtuOf } from '../../src/cni/plugin-about.ts';
import { BridgeConf, DEFAULT_BRIDGE, validateBridgeConf } from './config.ts';

/** The bridge plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
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
});
