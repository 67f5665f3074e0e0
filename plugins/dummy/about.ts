// What can tools know about dummy without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { DummyConf, validateDummyConf } from './config.ts';

/** The dummy plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'main',
  capabilities: ['mac'],
  config: DummyConf,
  validate: validateDummyConf,
});
