// What can tools know about ipvlan without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { IpvlanConf, validateIpvlanConf } from './config.ts';

/** The ipvlan plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  capabilities: [],
  config: IpvlanConf,
  validate: validateIpvlanConf,
});
