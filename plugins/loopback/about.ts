// What can tools know about loopback without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { LoopbackConf } from './config.ts';

/** The loopback plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  summary: "brings up the container's loopback interface",
  capabilities: [],
  config: LoopbackConf,
  reachOf: () => ['processes of the container reach each other over it, and nothing else'],
});
