// What can tools know about dummy without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { DummyConf, validateDummyConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'gives the container a device that leads nowhere, for addresses that must exist in it',
  capabilities: ['mac'],
  config: DummyConf,
  validate: validateDummyConf,
  reachOf: () => ['nothing outside of the container is reached over its device'],
});
