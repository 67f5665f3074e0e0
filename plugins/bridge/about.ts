// What do tools know of bridge without running it?
import { aboutLink } from '../../src/cni/link-about.ts';
import { BridgeConf, validateBridgeConf } from './config.ts';

/** The bridge link, as `catena validate` and the published schemas see it. */
export const about = aboutLink({
  kind: 'main',
  capabilities: ['mac'],
  config: BridgeConf,
  validate: validateBridgeConf,
});
