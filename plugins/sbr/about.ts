// What can tools know about sbr without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { parseSbrConf, SbrConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'meta',
  summary: "sends the pod's packets through the interface that has their source address",
  capabilities: [],
  config: SbrConf,
  validate: conf => void parseSbrConf(conf),
});
