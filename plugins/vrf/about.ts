// What can tools know about vrf without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { parseVrfConf, VrfConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'meta',
  summary: 'moves the interface, with its addresses and routes, into a routing table of its own',
  capabilities: [],
  config: VrfConf,
  validate: conf => void parseVrfConf(conf),
});
