// What can tools know about bridge without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { BridgeConf, validateBridgeConf } from './config.ts';

/** The bridge plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  capabilities: ['mac'],
  config: BridgeConf,
  validate: validateBridgeConf,
});
