// What can tools know about loopback without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { LoopbackConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: "brings up the container's loopback interface",
  capabilities: [],
  config: LoopbackConf,
  reachOf: () => ['processes of the container reach each other over it, and nothing else'],
});
